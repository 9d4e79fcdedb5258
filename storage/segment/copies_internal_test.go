package segment

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// batchSpec is a batch to be written by hand, in order, to a segment file.
type batchSpec struct {
	number  uint64
	payload string
	ends    []End
}

func writeSegment(t *testing.T, m *vfstest.Mem, id uint32, specs ...batchSpec) {
	t.Helper()
	file := encodeHeader(fuzzPage, id)
	for _, s := range specs {
		b := NewBatch()
		b.Add(1, []byte(s.payload))
		info := BatchInfo{Number: s.number, Segment: id, Start: uint64(len(file))}
		file = append(file, b.encode(fuzzPage, &info, s.ends)...)
	}
	if err := vfs.WriteFile(m, "d/"+FileName(id), file); err != nil {
		t.Fatal(err)
	}
}

// TestCopies opens logs in which a number lies in two segments, named or not, with equal content
// and with another.
func TestCopies(t *testing.T) {
	one := batchSpec{number: 1, payload: "one"}
	for _, tc := range []struct {
		name          string
		first, second []batchSpec
		want          []string // nil for damage
		copied        int
	}{
		{"neither named", []batchSpec{one}, []batchSpec{one}, []string{"one"}, 1},
		{"the first named", []batchSpec{one, {2, "two", nil}}, []batchSpec{one}, []string{"one", "two"}, 1},
		{"the second named", []batchSpec{one}, []batchSpec{one, {2, "two", nil}}, []string{"one", "two"}, 1},
		{"both named", []batchSpec{one, {2, "two", nil}}, []batchSpec{one, {3, "three", nil}}, []string{"one", "two", "three"}, 2},
		{"three numbers", []batchSpec{one, {2, "two", nil}, {3, "three", nil}}, []batchSpec{{2, "two", nil}, {4, "four", nil}}, []string{"one", "two", "three", "four"}, 2},
		{"a dropped copy in the way", []batchSpec{one, {3, "three", nil}}, []batchSpec{one}, []string{"one", "three"}, 1},
		{"other content, neither named", []batchSpec{one}, []batchSpec{{1, "eno", nil}}, nil, 0},
		{"other content, one named", []batchSpec{one, {2, "two", nil}}, []batchSpec{{1, "eno", nil}}, nil, 0},
		{"other content, both named", []batchSpec{one, {2, "two", nil}}, []batchSpec{{1, "eno", nil}, {3, "three", nil}}, nil, 0},
		{"other ends", []batchSpec{one}, []batchSpec{{1, "one", []End{{1, headerBytes}}}}, nil, 0},
		{"other length", []batchSpec{one, {2, "two", nil}}, []batchSpec{{1, "one more", nil}, {3, "three", nil}}, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := vfstest.NewMem()
			if err := m.Mkdir("d"); err != nil {
				t.Fatal(err)
			}
			writeSegment(t, m, 1, tc.first...)
			writeSegment(t, m, 2, tc.second...)
			for i, readOnly := range []bool{true, false, false, true} {
				got, copied, err := replayCopies(t, m, readOnly)
				if tc.want == nil {
					if !errors.Is(err, base.ErrCorrupt) {
						t.Fatalf("open %d: error %v, want damage", i, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("open %d: %v", i, err)
				}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Fatalf("open %d: %s", i, d)
				}
				if i == 1 && copied != tc.copied {
					t.Fatalf("copied %d, want %d", copied, tc.copied)
				}
			}
		})
	}
}

func replayCopies(t *testing.T, m *vfstest.Mem, readOnly bool) (got []string, copied int, err error) {
	o := Options{FS: m, Dir: "d", Page: fuzzPage, ReadOnly: readOnly}
	l, rc, err := Open(t.Context(), o, nil, func(b BatchInfo, recs []Record) error {
		for _, r := range recs {
			got = append(got, string(r.Payload))
			if r.Place.Segment != b.Segment {
				return fmt.Errorf("batch in segment %d has a place in %d", b.Segment, r.Place.Segment)
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return got, rc.Copied, errors.Join(l.Verify(t.Context(), nil), l.Close())
}
