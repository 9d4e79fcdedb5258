package segment

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// TestHandles keeps a file in use while so many others are opened that it is dropped, and counts
// what is open.
func TestHandles(t *testing.T) {
	m := vfstest.NewMem()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.Mkdir("d"))
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
	wantOpen := func(want int) {
		t.Helper()
		if opened-closed != want {
			t.Fatalf("%d files are open, want %d", opened-closed, want)
		}
	}
	first, err := c.get(1)
	must(err)
	again, err := c.get(1)
	must(err)
	if again != first || opened != 1 {
		t.Fatal("a file was opened twice")
	}
	for id := uint32(2); id <= files; id++ {
		h, err := c.get(id)
		must(err)
		must(c.put(h))
	}
	wantOpen(maxHandles + 1)
	for range 2 {
		if _, err := first.f.ReadAt(make([]byte, 4), 0); err != nil {
			t.Fatalf("a file in use was closed: %v", err)
		}
		must(c.put(first))
	}
	wantOpen(maxHandles)
	if _, err := c.get(files + 1); !errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("error %v for a segment that is missing", err)
	}
	opened-- // it was counted before it failed
	inUse, err := c.get(files)
	must(err)
	must(c.close())
	wantOpen(1)
	must(c.put(inUse))
	wantOpen(0)
	if _, err := c.get(files); !errors.Is(err, base.ErrClosed) {
		t.Fatalf("error %v after close", err)
	}
	must(c.close())
}
