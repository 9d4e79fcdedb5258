package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/storage/index"
)

// SetTag points name to a commit, and returns when that is durable. The name has 1 to
// limits.MaxTagBytes bytes. Errors match base.ErrNotFound when there is no such commit, and
// base.ErrInvalid.
func (s *Store) SetTag(ctx context.Context, name string, id commit.ID) error {
	if err := checkTagName(name); err != nil {
		return err
	}
	epoch := s.epochNow()
	release := s.Pin(id)
	defer release()
	if _, err := s.Commit(ctx, id); err != nil {
		return fmt.Errorf("tag %q: %w", name, err)
	}
	return s.submitTag(ctx, &TagChange{Name: name, Commit: id}, epoch)
}

// DeleteTag removes a tag, and returns when that is durable. Errors match base.ErrNotFound when
// there is no such tag.
func (s *Store) DeleteTag(ctx context.Context, name string) error {
	if err := checkTagName(name); err != nil {
		return err
	}
	tags, err := s.Tags(ctx)
	if err != nil {
		return err
	}
	if _, ok := tags[name]; !ok {
		return fmt.Errorf("delete tag %q: %w", name, base.ErrNotFound)
	}
	return s.submitTag(ctx, &TagChange{Name: name, Removed: true}, s.epochNow())
}

func checkTagName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("tag without a name: %w", base.ErrInvalid)
	case len(name) > limits.MaxTagBytes:
		return fmt.Errorf("tag name of %d bytes, limit %d: %w", len(name), limits.MaxTagBytes, base.ErrTooLarge)
	}
	return nil
}

// submitTag writes a change of a tag, unless a group has failed since epoch, which may have held
// the commit.
func (s *Store) submitTag(ctx context.Context, t *TagChange, epoch uint64) error {
	return s.submitOps(ctx, []op{{kind: recTag, tag: t}}, submission{
		check: func() error { return s.epochLocked(epoch) }, late: true, news: true,
	})
}

// Tags returns all durable tags of the page. The caller owns the map. Errors match base.ErrCorrupt
// or base.ErrClosed.
func (s *Store) Tags(context.Context) (map[string]commit.ID, error) {
	ts, err := s.readTags()
	return ts.tags, err
}

// readTags returns the durable tags.
func (s *Store) readTags() (ts tagState, err error) {
	err = s.viewPending(false, ofTags, func(tx index.Tx, pending []pendingOp) error {
		ts = tagState{map[string]commit.ID{}, map[string]*TagChange{}}
		for k, v := range rowsOf(tx, bucketTags) {
			if err := ts.add(string(k), v, nil); err != nil {
				return err
			}
		}
		for k, v := range rowsOf(tx, bucketNewTags) {
			if err := ts.add(string(k), nil, v); err != nil {
				return err
			}
		}
		for _, o := range pending {
			ts.apply(o.op)
		}
		return nil
	})
	return ts, err
}

// UnsyncedTags returns the durable changes of tags that were made on this device and are not in the
// bucket, sorted by name. Errors match base.ErrCorrupt or base.ErrClosed.
func (s *Store) UnsyncedTags(context.Context) ([]TagChange, error) {
	ts, err := s.readTags()
	if err != nil {
		return nil, fmt.Errorf("list unsynced tags: %w", err)
	}
	out := make([]TagChange, 0, len(ts.news))
	for _, name := range slices.Sorted(maps.Keys(ts.news)) {
		out = append(out, *ts.news[name])
	}
	return out, nil
}

// tagState holds the tags of a page and the changes of them that were made on this device and are
// not in the bucket.
type tagState struct {
	tags map[string]commit.ID
	news map[string]*TagChange
}

// add adds the rows of a tag; nil stands for an absent row.
func (ts *tagState) add(name string, tag, news []byte) (err error) {
	if tag != nil {
		ts.tags[name], err = parseTagRow(name, tag)
	}
	if news != nil && err == nil {
		ts.news[name], err = parseNewTagRow(name, news)
	}
	return err
}

// apply applies a record to the tags.
func (ts *tagState) apply(o *op) {
	switch o.kind {
	case recTag:
		o.tag.apply(ts.tags)
		ts.news[o.tag.Name] = o.tag
	case recTagReceived:
		if ts.news[o.tag.Name] == nil {
			o.tag.apply(ts.tags)
		}
	case recTagSynced:
		if n := ts.news[o.tag.Name]; n != nil && *n == *o.tag {
			delete(ts.news, o.tag.Name)
		}
	}
}

func (t *TagChange) apply(tags map[string]commit.ID) {
	if t.Removed {
		delete(tags, t.Name)
	} else {
		tags[t.Name] = t.Commit
	}
}

// tagOps returns records of a kind for changes of tags.
func tagOps(ops []op, kind byte, tags []TagChange) []op {
	for _, t := range tags {
		if t.Removed {
			t.Commit = commit.ID{}
		}
		ops = append(ops, op{kind: kind, tag: &t})
	}
	return ops
}

func tagRow(name string, id commit.ID) []byte {
	return withSum([]byte(name), id[:])
}

func parseTagRow(name string, v []byte) (commit.ID, error) {
	b, ok := cutSum([]byte(name), v)
	if !ok || len(b) != commit.IDSize {
		return commit.ID{}, badRow(bucketTags, "", "bad checksum")
	}
	return commit.ID(b), nil
}

// newTagRow is the value of a row of bucket unsynced/tags.
func newTagRow(t *TagChange) []byte {
	var c coder
	t.codeTarget(&c)
	return withSum([]byte(t.Name), c.p)
}

func parseNewTagRow(name string, v []byte) (*TagChange, error) {
	b, ok := cutSum([]byte(name), v)
	c, t := coder{p: b, reading: true}, &TagChange{Name: name}
	if t.codeTarget(&c); !ok || c.bad || len(c.p) > 0 {
		return nil, badRow(bucketNewTags, "", "bad value or checksum")
	}
	return t, nil
}

// writeTag applies a record to the rows of a tag.
func writeTag(tx index.Tx, o *op) error {
	tags, news, name := tx.Bucket(bucketTags), tx.Bucket(bucketNewTags), o.tag.Name
	key := []byte(name)
	ts := tagState{map[string]commit.ID{}, map[string]*TagChange{}}
	if err := ts.add(name, tags.Get(key), news.Get(key)); err != nil {
		return err
	}
	ts.apply(o)
	id, there := ts.tags[name]
	if err := setRow(tags, key, there, tagRow(name, id)); err != nil {
		return err
	}
	if t := ts.news[name]; t != nil {
		return setRow(news, key, true, newTagRow(t))
	}
	return news.Delete(key)
}
