package filetree

import (
	"bytes"
	"context"
	"iter"

	"github.com/ledgerd/ledger"
)

// Kind is the kind of change of a path.
type Kind byte

// The kinds. Their characters are what diff prints.
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
	// Content is the change of the content entry; nil when only the attributes differ.
	Content *ledger.Change
	// Attributes is the change of the attributes entry; nil when only the content differs.
	Attributes *ledger.Change
}

// Kind returns the kind of change. A change of attributes alone is Changed.
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

// Diff lists the paths that begin with prefix and differ between two commits, in order, each once,
// whether its content, its attributes or both differ. A directory that is not empty is added and
// removed with its files: it is listed only when its mode has changed. An error ends the sequence,
// as the last element and without a change. The cost follows the number of changes.
func Diff(ctx context.Context, page *ledger.Page, from, to ledger.CommitID, prefix []byte) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for c, err := range diffAll(ctx, page, from, to, prefix) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			if !c.isHidden() && !yield(c, nil) {
				return
			}
		}
	}
}

// isHidden reports whether c belongs to no path, or to a directory that is not empty and was added
// or removed.
func (c *Change) isHidden() bool {
	if c.Content != nil {
		return false
	}
	one := c.Attributes.Old == nil || c.Attributes.New == nil
	return string(c.Attributes.Key) == sourceKey || one && (len(c.Path) == 0 || c.Path[len(c.Path)-1] == '/')
}

// diffAll is Diff with all directories. It pairs changes of attributes with changes of contents;
// both are in the order of paths.
func diffAll(ctx context.Context, page *ledger.Page, from, to ledger.CommitID, prefix []byte) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		next, stop := iter.Pull2(page.Diff(ctx, from, to, &ledger.DiffOptions{Prefix: AttributesKey(prefix)}))
		defer stop()
		var path []byte
		attributes, attributesErr, more := next()
		// take yields the next change of attributes, with content unless that is nil.
		take := func(content *ledger.Change) bool {
			if attributesErr != nil {
				yield(Change{}, attributesErr)
				return false
			}
			own := attributes
			path, _ = AttributesPath(own.Key)
			attributes, attributesErr, more = next()
			return yield(Change{Path: path, Content: content, Attributes: &own}, nil)
		}
		for c, err := range contentDiff(ctx, page, from, to, prefix) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			order := -1
			for more && order < 0 {
				if path, _ = AttributesPath(attributes.Key); attributesErr == nil {
					order = bytes.Compare(path, c.Key)
				}
				if order < 0 && !take(nil) || order == 0 && !take(&c) {
					return
				}
			}
			if order != 0 && !yield(Change{Path: c.Key, Content: &c}, nil) {
				return
			}
		}
		for more && take(nil) {
		}
	}
}

// contentDiff lists the changes of entries other than attributes.
func contentDiff(ctx context.Context, page *ledger.Page, from, to ledger.CommitID, prefix []byte) iter.Seq2[ledger.Change, error] {
	return func(yield func(ledger.Change, error) bool) {
		end := []byte(attributesPrefix)
		for _, start := range [][]byte{nil, []byte(attributesEnd)} {
			for c, err := range page.Diff(ctx, from, to, &ledger.DiffOptions{Prefix: prefix, Start: start}) {
				if err == nil && end != nil && bytes.Compare(c.Key, end) >= 0 {
					break
				}
				if !yield(c, err) || err != nil {
					return
				}
			}
			end = nil
		}
	}
}
