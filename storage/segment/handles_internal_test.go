package segment

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// TestHandles reads more files than are kept open, some of them with files that were closed since
// they were looked up, and counts what is open.
func TestHandles(t *testing.T) {
	m := vfstest.NewMem()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.MkdirAll("d"))
	const files = maxHandles + 10
	for id := uint32(1); id <= files; id++ {
		must(vfs.WriteFile(m, "d/"+FileName(id), encodeHeader(fuzzPage, id)))
	}
	opened, closed := 0, 0
	c := newHandles(vfstest.NewFaulty(m, func(op vfstest.Op) error {
		switch op.Kind {
		case vfstest.OpOpen:
			opened++
		case vfstest.OpClose:
			closed++
		}
		return nil
	}), "d", fuzzPage)
	for id := uint32(1); id <= files; id++ {
		b, err := readSegment(c, nil, id, 0, headerBytes)
		must(err)
		if whole, err := checkHeader(b, fuzzPage, id); !whole || err != nil {
			t.Fatalf("segment %d: read another file: %v", id, err)
		}
		if want := min(int(id), maxHandles); opened-closed != want {
			t.Fatalf("%d files are open, want %d", opened-closed, want)
		}
	}
	reads := 0
	c.fs = vfstest.NewFaulty(m, func(op vfstest.Op) error {
		if op.Kind != vfstest.OpRead {
			return nil
		}
		if reads++; reads == 2 { // behind the header: as if others had opened more files meanwhile
			return fs.ErrClosed
		}
		return nil
	})
	must(c.drop(2))
	if _, err := readSegment(c, nil, 2, 4, 4); err != nil || reads != 3 {
		t.Fatalf("read of a file that was closed meanwhile: %v", err)
	}
	if _, err := c.get(files + 1); !errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("error %v for a segment that is missing", err)
	}
	_ = c.close()
	if _, err := readSegment(c, nil, files, 0, 1); !errors.Is(err, base.ErrClosed) {
		t.Fatalf("error %v after close", err)
	}
	must(c.close())
}
