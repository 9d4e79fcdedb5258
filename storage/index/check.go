package index

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/boltpage"
)

// precheck verifies what bbolt reads and trusts blindly when it opens the file: the meta pages, the
// length of the file, and the list of free pages, which it returns.
func (f *File) precheck() (free *boltpage.Set, err error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) && !f.readOnly {
		return boltpage.NewSet(0), nil
	}
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	defer file.Close() // read only
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	if info.Size() == 0 && !f.readOnly {
		return boltpage.NewSet(0), nil
	}
	m, err := boltpage.ReadMeta(file, info.Size())
	if err == nil {
		free, err = boltpage.CheckFree(file, m)
	}
	if errors.Is(err, base.ErrCorrupt) {
		return nil, fmt.Errorf("open index: %w", f.damaged(err))
	}
	if err != nil {
		return nil, fmt.Errorf("open index %s: %w", f.path, err)
	}
	return free, nil
}

// walk verifies the branches of every tree and the leaves of the root tree, and that no page
// belongs to two places.
func (f *File) walk(free *boltpage.Set) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	b, err := f.bolt.Begin(false)
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	defer f.end(&err, b)
	defer f.guard(&err)()
	im := f.image(b)
	f.verified = boltpage.NewSet(im.Pages)
	im.Verified = f.verified
	if err := im.Walk(uint64(b.Cursor().Bucket().Root()), free, false); err != nil {
		return fmt.Errorf("open index: %w", f.damaged(err))
	}
	return nil
}
