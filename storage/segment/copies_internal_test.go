package segment

import (
	"errors"
	"testing"

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
// and with another: a number lies in one place, so that this is damage.
func TestCopies(t *testing.T) {
	one := batchSpec{number: 1, payload: "one"}
	for _, tc := range []struct {
		name          string
		first, second []batchSpec
	}{
		{"neither named", []batchSpec{one}, []batchSpec{one}},
		{"the first named", []batchSpec{one, {2, "two", nil}}, []batchSpec{one}},
		{"both named", []batchSpec{one, {2, "two", nil}}, []batchSpec{one, {3, "three", nil}}},
		{"not the first number", []batchSpec{one, {2, "two", nil}, {3, "three", nil}}, []batchSpec{{2, "two", nil}, {4, "four", nil}}},
		{"other content, neither named", []batchSpec{one}, []batchSpec{{1, "eno", nil}}},
		{"other content, both named", []batchSpec{one, {2, "two", nil}}, []batchSpec{{1, "eno", nil}, {3, "three", nil}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := vfstest.NewMem()
			if err := m.MkdirAll("d"); err != nil {
				t.Fatal(err)
			}
			writeSegment(t, m, 1, tc.first...)
			writeSegment(t, m, 2, tc.second...)
			for i, readOnly := range []bool{true, false, false, true} {
				_, _, err := Open(t.Context(), Options{FS: m, Dir: "d", Page: fuzzPage, ReadOnly: readOnly}, nil, nil)
				if !errors.Is(err, base.ErrCorrupt) {
					t.Fatalf("open %d: error %v, want damage", i, err)
				}
			}
		})
	}
}
