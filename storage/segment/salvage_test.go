package segment_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

// salvage repairs a log without anything but what is whole, and returns what was damaged.
func salvage(t *testing.T, m *vfstest.Mem, known *segment.Position) []segment.Damage {
	t.Helper()
	s, err := segment.OpenSalvage(t.Context(), options(m), known, nil)
	must(t, err)
	damage := s.Damage()
	if len(damage) > 0 {
		must(t, s.Begin())
		stream := s.Log().Main()
		appendTo(t, stream, rec{77, "repaired"})
		must(t, s.Each(t.Context(), func(p segment.Part) error {
			out := segment.NewBatch()
			for _, r := range p.Records {
				if p.Leaves && !p.Damaged {
					out.Add(r.Kind, r.Payload)
				}
			}
			if out.Len() == 0 {
				return nil
			}
			_, err := stream.Append(out)
			return err
		}))
		must(t, s.End())
	}
	must(t, s.Close())
	return damage
}

// TestSalvage damages every byte of a log, cuts it everywhere, removes its files: what is left is a
// log with all batches but those that were damaged, and an index from before is refused.
func TestSalvage(t *testing.T) {
	for _, segments := range []int{1, 2} {
		s := newSmallLog(t, segments)
		for name, content := range s.files {
			for off := 0; off < len(content); off += 1 + off/200 {
				bad := []byte(string(content))
				bad[off] ^= 0x40
				s.salvaged(t, fmt.Sprintf("%s, flip at %d", name, off), s.with(t, name, bad), 1)
				s.salvaged(t, fmt.Sprintf("%s, cut at %d", name, off), s.with(t, name, content[:off]), len(s.recs))
			}
			s.salvaged(t, name+" is gone", s.with(t, name, nil), len(s.recs))
			s.salvaged(t, name+" is zero", s.with(t, name, make([]byte, len(content))), len(s.recs))
		}
	}
}

// salvaged repairs m, in which at most so many batches are damaged.
func (s *smallLog) salvaged(t *testing.T, what string, m *vfstest.Mem, most int) {
	t.Helper()
	damage := salvage(t, m, &s.pos)
	if len(damage) == 0 {
		t.Fatalf("%s: no damage found", what)
	}
	_, _, err := segment.Open(t.Context(), options(m), &s.pos, nil)
	if err == nil {
		t.Fatalf("%s: an index from before is believed", what)
	}
	if !errors.Is(err, segment.ErrIndexMismatch) || errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("%s: with an index from before: %v", what, err)
	}
	var got [][]rec
	l, _, err := segment.Open(t.Context(), options(m), nil, func(_ segment.BatchInfo, recs []segment.Record) error {
		var all []rec
		for _, r := range recs {
			all = append(all, rec{r.Kind, string(r.Payload)})
		}
		got = append(got, all)
		return nil
	})
	if err != nil {
		t.Fatalf("%s: open: %v", what, err)
	}
	if err := l.Verify(t.Context(), nil); err != nil {
		t.Fatalf("%s: verify: %v", what, err)
	}
	appendTo(t, l.Main(), rec{1, "after"})
	must(t, l.Close())
	marks, lost := 0, 0
	for _, want := range s.recs {
		if !slices.ContainsFunc(got, func(r []rec) bool { return slices.Equal(r, want) }) {
			lost++
		}
	}
	for _, r := range got {
		for _, r := range r {
			if r.Payload == "repaired" {
				marks++
			}
		}
	}
	if lost > most || marks != 1 {
		t.Fatalf("%s: %d batches are lost, at most %d are damaged; damage %v; %d marks", what, lost, most, damage, marks)
	}
	if again := salvage(t, m, nil); len(again) > 0 {
		t.Fatalf("%s: damage after repair: %v", what, again)
	}
}

// TestSalvageCarves finds the records of a damaged batch that are still there.
func TestSalvageCarves(t *testing.T) {
	s := newSmallLog(t, 1)
	name := s.lastFile()
	bad := []byte(string(s.files[name]))
	at := strings.Index(string(bad), "payload of 2")
	bad[at] ^= 1
	m := s.with(t, name, bad)
	sal, err := segment.OpenSalvage(t.Context(), options(m), nil, nil)
	must(t, err)
	var got []rec
	must(t, sal.Each(t.Context(), func(p segment.Part) error {
		if p.Damaged {
			for _, r := range p.Records {
				got = append(got, rec{r.Kind, string(r.Payload)})
			}
		}
		return nil
	}))
	must(t, sal.Close())
	want := []rec{{2, "qayload of 2"}, {9, strings.Repeat("x", 40)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}
