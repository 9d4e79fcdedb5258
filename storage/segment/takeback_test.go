package segment_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

// TestTakeBack cuts what a stream has appended off its segment, but for what another segment
// names.
func TestTakeBack(t *testing.T) {
	for name, known := range map[string]func(l *segment.Log) error{
		"nobody knows":    func(*segment.Log) error { return nil },
		"another segment": func(l *segment.Log) error { _, err := l.Main().Append(batchOf(rec{1, "commit"})); return err },
	} {
		t.Run(name, func(t *testing.T) {
			m := vfstest.NewMem()
			l, _, err := segment.Open(t.Context(), options(m), nil, nil)
			must(t, err)
			defer l.Close()
			_, err = l.Main().Append(batchOf(rec{1, "first"}))
			must(t, err)
			s := l.NewStream()
			before, err := s.Append(batchOf(rec{1, "before"}))
			must(t, err)
			must(t, known(l))
			after, err := s.Append(batchOf(rec{1, "after"}))
			must(t, err)

			starts := []segment.End{{Segment: before.Segment, Offset: before.Start}}
			cut := s.Forget(starts)
			want := before.End
			ends := []segment.End{{Segment: after.Segment, Offset: after.Start}}
			if name == "nobody knows" {
				want = before.Start
				ends = append(ends, starts...)
			}
			if d := cmp.Diff(ends, cut); d != "" {
				t.Fatal(d)
			}
			must(t, l.Cut(cut))
			if _, err := l.Read(after.Places[0], nil); !errors.Is(err, segment.ErrRetired) {
				t.Errorf("read what was taken back: %v, want ErrRetired", err)
			}
			if again := s.Forget(starts); len(again) > 0 {
				t.Errorf("taken back twice: %+v", again)
			}
			if f, err := m.Open(filepath.Join("page", segment.FileName(before.Segment))); err != nil {
				t.Error(err)
			} else if n, err := f.Size(); err != nil || n != int64(want) {
				t.Errorf("the file has %d bytes, %v, want %d", n, err, want)
			}
			again, err := s.Append(batchOf(rec{1, "again"}))
			must(t, err)
			if again.Start != want || again.Number <= after.Number {
				t.Errorf("appended at %d with number %d", again.Start, again.Number)
			}
		})
	}
}

// TestTakeBackSegments takes back what a stream has appended to several segments, also after it was
// released, but for what lies before an end that another stream has named.
func TestTakeBackSegments(t *testing.T) {
	for name, c := range map[string]struct {
		known int // after so many batches another stream appends one
		stay  int // so many stay
	}{"nobody knows": {-1, 0}, "the first": {1, 1}, "the third": {3, 3}, "all": {6, 6}} {
		t.Run(name, func(t *testing.T) {
			m := vfstest.NewMem()
			o := options(m)
			o.SegmentBytes = 300
			l, _, err := segment.Open(t.Context(), o, nil, nil)
			must(t, err)
			defer l.Close()
			s := l.NewStream()
			var all []segment.Appended
			for i := range 6 {
				if i == c.known {
					appendTo(t, l.Main(), rec{1, "commit"})
				}
				all = append(all, appendTo(t, s, rec{1, strings.Repeat("x", 200)}))
			}
			if c.known == 6 {
				appendTo(t, l.Main(), rec{1, "commit"})
			}
			s.Release()
			var starts, want []segment.End
			for i, a := range all {
				e := segment.End{Segment: a.Segment, Offset: a.Start}
				if i == 0 || all[i-1].Segment != a.Segment {
					starts = append(starts, e)
				}
				if i >= c.stay {
					want = append(want, e)
				}
			}
			if len(starts) < 3 {
				t.Fatalf("the batches lie in %d segments", len(starts))
			}
			slices.Reverse(want)
			cut := s.Forget(starts)
			if d := cmp.Diff(want, cut, cmpopts.EquateEmpty()); d != "" {
				t.Fatal(d)
			}
			must(t, l.Cut(cut))
			for i, a := range all {
				if _, err := l.Read(a.Places[0], nil); (err == nil) != (i < c.stay) || err != nil && !errors.Is(err, segment.ErrRetired) {
					t.Errorf("read batch %d, of which %d stay: %v", i, c.stay, err)
				}
			}
			must(t, l.Verify(t.Context(), nil))
			before := len(l.Segments())
			appendTo(t, l.NewStream(), rec{1, "again"})
			if n := len(l.Segments()); n != before && c.stay < 6 {
				t.Errorf("%d segments, then %d: what was cut is not appended to again", before, n)
			}
		})
	}
}
