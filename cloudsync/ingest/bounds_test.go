package ingest_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// story is a log that has something of everything.
type story struct {
	*world
	a       *device
	cs      []*commit.Commit
	number  uint64 // of the checkpoint
	history func(yield func(*format.Entry) error) error
}

// newStory writes the log: values in entries, in EAGER and LAZY packs, values that become EAGER, a
// merge with an explanation, a checkpoint, and what it makes needless condemned.
func newStory(t testing.TB) *story {
	t.Helper()
	w := newWorld(t)
	s := &story{world: w, a: w.device(t)}
	a := s.a
	add := func(c *commit.Commit) *commit.Commit { s.cs = append(s.cs, c); return c }
	add(a.commit(edit{"inline": noise(1, 9000), "k": []byte("v")}))
	a.push()
	w.append(a.upload(add(a.commit(edit{"eager": noise(2, 150_000), "old": noise(9, 30_000)}))))
	a.priority = object.Lazy
	w.append(a.upload(add(a.commit(edit{"lazy": noise(3, 150_000), "lazier": noise(4, 40_000)}))))
	a.pull()
	a.priority = object.Eager
	one := add(a.commit(edit{"was lazy": noise(3, 150_000), "also": noise(4, 40_000), "k": nil}))
	two := add(a.commit(edit{"other": noise(5, 3000), "old": nil}, s.cs[2]))
	a.push()
	m := add(a.merge(one, two))
	a.push()
	for i := range 30 {
		add(a.commit(edit{fmt.Sprint(i % 4): noise(uint64(i), 200), "last": fmt.Append(nil, i)}))
	}
	a.push()
	c := a.checkpoint(s.cs[len(s.cs)-1])
	_, roots := a.diff(btree.EmptyRoot, s.cs[len(s.cs)-1].Root)
	c.Packs = a.uploadValues(roots...)
	c.Condemned = []format.Condemnation{{Packs: []format.ID{w.newID()}}}
	s.number = w.put(c)
	w.append(&format.Body{Device: a.id, Packs: c.Packs})
	w.append(&format.Body{Device: a.id, Condemned: &format.Condemnation{Packs: []format.ID{w.log[2].Body.Packs[0].ID}, Below: 2}})
	add(a.commit(edit{"end": noise(6, 1000)}))
	a.push()
	_ = m
	s.history = func(yield func(*format.Entry) error) error {
		for _, e := range w.log {
			if err := yield(e); err != nil {
				return err
			}
		}
		return nil
	}
	return s
}

// same fails the test unless d has all that the story tells.
func (s *story) same(d *device) {
	d.t.Helper()
	if diff := cmp.Diff(headIDs(s.a), headIDs(d)); diff != "" {
		d.t.Fatal(diff)
	}
	d.s.SetFetcher(d.fetcher)
	head := s.cs[len(s.cs)-1]
	d.wholly(head)
	if diff := cmp.Diff(s.a.content(head), d.content(head)); diff != "" {
		d.t.Fatal("contents differ")
	}
	d.check()
}

// TestSmallBounds takes the story in with bounds that are reached again and again.
func TestSmallBounds(t *testing.T) {
	s := newStory(t)
	b := s.device(t)
	ingest.SetSmallBounds(b.page)
	b.pull()
	s.same(b)

	b = s.device(t)
	ingest.SetSmallBounds(b.page)
	for i := range s.log {
		if _, err := b.apply(s.log[i]); err != nil {
			t.Fatal(err)
		}
	}
	s.same(b)
}

// TestAdoptStory begins with the checkpoint, on an empty page and on one that has read a part of
// the log, and builds all older trees.
func TestAdoptStory(t *testing.T) {
	s := newStory(t)
	for _, read := range []int{0, 1, 3, 5} {
		for _, small := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%t", read, small), func(t *testing.T) {
				b := s.device(t)
				if small {
					ingest.SetSmallBounds(b.page)
				}
				if _, err := b.apply(s.log[:read]...); err != nil {
					t.Fatal(err)
				}
				if _, _, err := b.page.Adopt(t.Context(), s.number); err != nil {
					t.Fatal(err)
				}
				b.read = int(s.number)
				b.pull()
				s.same(b)
				// One from far away first, so that there is a way to it.
				for i, c := range append([]*commit.Commit{s.cs[len(s.cs)-4]}, s.cs...) {
					if err := b.page.BuildTree(t.Context(), c.ID, past(s.history)); err != nil {
						t.Fatalf("commit %d: %v", i, err)
					}
					if diff := cmp.Diff(b.keys(c), s.a.keys(c)); diff != "" {
						t.Fatalf("commit %d: %s", i, diff)
					}
				}
				b.check()
			})
		}
	}
}

// keys returns the keys of a commit, without their values.
func (d *device) keys(c *commit.Commit) []string {
	d.t.Helper()
	var keys []string
	cur := btree.Tree{Page: testPage, Source: d.s, Root: c.Root}.Cursor()
	ok, err := cur.First(d.t.Context())
	for ; ok && err == nil; ok, err = cur.Next(d.t.Context()) {
		keys = append(keys, string(cur.Key()))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return keys
}

// TestBuildTreePlaces finds values of an old tree whose places came in entries that a page with a
// checkpoint has not read.
func TestBuildTreePlaces(t *testing.T) {
	s := newStory(t)
	b := s.device(t)
	if _, _, err := b.page.Adopt(t.Context(), s.number); err != nil {
		t.Fatal(err)
	}
	if err := b.page.BuildTree(t.Context(), s.cs[1].ID, past(s.history)); err != nil {
		t.Fatal(err)
	}
	b.s.SetFetcher(b.fetcher)
	if got := b.content(s.cs[1])["old"]; got != string(noise(9, 30_000)) {
		t.Fatalf("a value of %d bytes", len(got))
	}
	b.check()
}

// TestBuildTreeBad refuses a history that leads elsewhere.
func TestBuildTreeBad(t *testing.T) {
	s := newStory(t)
	b := s.device(t)
	if _, _, err := b.page.Adopt(t.Context(), s.number); err != nil {
		t.Fatal(err)
	}
	target := s.cs[1].ID
	before := b.rows()
	broken := func(change func(i int, e *format.Entry)) func(yield func(*format.Entry) error) error {
		return func(yield func(*format.Entry) error) error {
			for i, e := range s.log {
				x, body := *e, *e.Body
				body.Commits = append([]format.CommitChange(nil), body.Commits...)
				x.Body = &body
				change(i, &x)
				if err := yield(&x); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var e *ingest.EntryError
	err := b.page.BuildTree(t.Context(), target, past(broken(func(i int, e *format.Entry) {
		if i == 0 {
			e.Body.Commits[0].Diff.Inline = s.log[5].Body.Commits[0].Diff.Inline
		}
	})))
	if !errors.As(err, &e) || e.Object != s.names.Entry(1) {
		t.Errorf("another diff: %v", err)
	}
	err = b.page.BuildTree(t.Context(), target, past(broken(func(i int, e *format.Entry) {
		if i == 0 {
			e.Body.Commits[0].Diff.Inline = bytes.Repeat([]byte{0xff}, 9)
		}
	})))
	if !errors.As(err, &e) || e.Object != s.names.Entry(1) {
		t.Errorf("a diff that is none: %v", err)
	}
	err = b.page.BuildTree(t.Context(), target, past(broken(func(i int, e *format.Entry) {
		if i == 0 {
			e.Body.Commits[0].Diff = format.Diff{Pack: s.newID(), Bytes: 10}
		}
	})))
	if !errors.Is(err, base.ErrNotFound) {
		t.Errorf("a diff that is gone: %v", err)
	}
	err = b.page.BuildTree(t.Context(), target, past(broken(func(i int, e *format.Entry) {
		if i == 0 {
			e.Body.Commits = nil
		}
	})))
	if !errors.Is(err, base.ErrGone) {
		t.Errorf("without the first commit: %v", err)
	}
	calls := 0
	err = b.page.BuildTree(t.Context(), target, past(func(yield func(*format.Entry) error) error {
		if calls++; calls > 1 {
			return errBroken
		}
		return s.history(yield)
	}))
	if !errors.Is(err, errBroken) {
		t.Errorf("a history that breaks off: %v", err)
	}
	if after := b.rows(); after != before {
		t.Error("rows changed")
	}
}

var errBroken = errors.New("broken on purpose")
