package segment_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

// TestTakeBack cuts what a stream has appended off its segment, but for what another segment names or a position reflects.
func TestTakeBack(t *testing.T) {
	for name, known := range map[string]func(l *segment.Log) error{
		"nobody knows":    func(*segment.Log) error { return nil },
		"a position":      func(l *segment.Log) error { l.Position(l.Complete()); return nil },
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

			from, ok := s.Forget(before.Start)
			want := before.Start
			if name != "nobody knows" {
				want = before.End
			}
			if !ok || from != want {
				t.Fatalf("taken back from %d, %t, want %d", from, ok, want)
			}
			must(t, s.Cut())
			if _, err := l.Read(after.Places[0], nil); !errors.Is(err, segment.ErrRetired) {
				t.Errorf("read what was taken back: %v, want ErrRetired", err)
			}
			if _, ok := s.Forget(before.Start); ok {
				t.Error("taken back twice")
			}
			if f, err := m.Open(filepath.Join("page", segment.FileName(s.Segment()))); err != nil {
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
