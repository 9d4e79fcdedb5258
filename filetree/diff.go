package filetree

import (
	"bytes"
	"context"
	"iter"

	"github.com/ledgerd/ledger"
)

// Kind says what became of a path.
type Kind byte

// The kinds. As characters they are what diff prints.
const (
	Added   Kind = '+'
	Removed Kind = '-'
	Changed Kind = '~'
)

// String returns "added", "removed" or "changed".
func (k Kind) String() string {
	switch k {
	case Added:
		return "added"
	case Removed:
		return "removed"
	}
	return "changed"
}

// Change is a path whose content or attributes differ between two commits.
type Change struct {
	Path []byte
	// Content is what became of the content entry; nil when only the attributes differ.
	Content *ledger.Change
	// Attributes is what became of the attributes entry; nil when only the content differs.
	Attributes *ledger.Change
}

// Kind returns what became of the path. A change of attributes alone is Changed.
func (c Change) Kind() Kind {
	switch {
	case c.Content == nil:
		return Changed
	case c.Content.Old == nil:
		return Added
	case c.Content.New == nil:
		return Removed
	}
	return Changed
}

// Diff lists the paths that differ between two commits and begin with prefix, in order, each once
// whether its content, its attributes or both differ. A directory that is not empty comes and goes
// with its files: it is listed only when its mode has changed. It stops after an error, which comes
// last and without a change. Its cost follows the number of changes.
func Diff(ctx context.Context, page *ledger.Page, from, to ledger.CommitID, prefix []byte) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for c, err := range diffAll(ctx, page, from, to, prefix) {
			hidden := false
			if err == nil {
				hidden, err = c.isHidden(ctx)
			}
			if err != nil {
				yield(Change{}, err)
				return
			}
			if !hidden && !yield(c, nil) {
				return
			}
		}
	}
}

// isHidden reports whether c is about no path, or about a directory that is not empty and comes or
// goes.
func (c *Change) isHidden(ctx context.Context) (bool, error) {
	if c.Content == nil && string(c.Attributes.Key) == sourceKey {
		return true, nil
	}
	if c.Content != nil || c.Attributes.Old != nil && c.Attributes.New != nil {
		return false, nil
	}
	side := c.Attributes.New
	if side == nil {
		side = c.Attributes.Old
	}
	a, _, err := attributesOfEntry(ctx, *side) // what is damaged is listed
	return a != nil && a.Type == Directory, err
}

// diffAll is Diff with all directories.
func diffAll(ctx context.Context, page *ledger.Page, from, to ledger.CommitID, prefix []byte) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		attributes, stop := iter.Pull2(page.Diff(ctx, from, to, &ledger.DiffOptions{Prefix: AttributesKey(prefix)}))
		defer stop()
		m := &merger{next: attributes, yield: yield}
		if !m.advance() {
			return
		}
		for c, err := range contentDiff(ctx, page, from, to, prefix) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			if !m.content(c) {
				return
			}
		}
		m.rest()
	}
}

// contentDiff lists the changes of entries that hold no attributes.
func contentDiff(ctx context.Context, page *ledger.Page, from, to ledger.CommitID, prefix []byte) iter.Seq2[ledger.Change, error] {
	return func(yield func(ledger.Change, error) bool) {
		for c, err := range page.Diff(ctx, from, to, &ledger.DiffOptions{Prefix: prefix}) {
			if err == nil && bytes.Compare(c.Key, []byte(attributesPrefix)) >= 0 {
				break
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
		start := maxStart(prefix, []byte(attributesEnd))
		for c, err := range page.Diff(ctx, from, to, &ledger.DiffOptions{Prefix: prefix, Start: start}) {
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// merger pairs changes of attributes with those of contents; both come in the order of paths.
type merger struct {
	next    func() (ledger.Change, error, bool)
	yield   func(Change, error) bool
	pending *ledger.Change // of attributes, not yet paired
	path    []byte         // of pending
}

// advance takes the next change of attributes. It returns false after an error, which it has
// yielded.
func (m *merger) advance() bool {
	c, err, ok := m.next()
	if !ok {
		m.pending = nil
		return true
	}
	if err != nil {
		m.yield(Change{}, err)
		return false
	}
	m.pending = &c
	m.path, _ = AttributesPath(c.Key)
	return true
}

// content yields a change of content, with the attributes of the same path, behind those of smaller
// paths.
func (m *merger) content(c ledger.Change) bool {
	for m.pending != nil && bytes.Compare(m.path, c.Key) < 0 {
		if !m.yield(Change{Path: m.path, Attributes: m.pending}, nil) || !m.advance() {
			return false
		}
	}
	out := Change{Path: c.Key, Content: &c}
	if m.pending != nil && bytes.Equal(m.path, c.Key) {
		out.Attributes = m.pending
		if !m.advance() {
			return false
		}
	}
	return m.yield(out, nil)
}

// rest yields the changes of attributes behind the last change of content.
func (m *merger) rest() {
	for m.pending != nil {
		if !m.yield(Change{Path: m.path, Attributes: m.pending}, nil) || !m.advance() {
			return
		}
	}
}
