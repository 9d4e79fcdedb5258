package storage

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// Reserve is a file that keeps disk space free for the pages of a repository. On a full disk it is
// removed while history is pruned, or garbage is collected and compacted: all need some space
// before they free any. It is safe for concurrent use.
type Reserve struct {
	fs   vfs.FS
	name string

	mu     sync.Mutex // held during I/O
	known  bool       // guarded by mu; bytes is up to date
	bytes  int64      // guarded by mu; of the file
	lent   int        // guarded by mu; number of callers that use its space
	scarce bool       // guarded by mu; since its removal there was no room for the full length
}

const (
	// reserveBytes is room for the live content of the longest batch, of a journal or of fetched
	// pieces, and for the index.
	reserveBytes = streamBytes + 2<<20
	// reserveFrom is the length of a page's segments from which on there is a reserve.
	reserveFrom = 512 << 10
	// minReserve is the length below which a reserve is of no use.
	minReserve = 64 << 10
	// spareBytes is how much Compact copies on a full disk before it frees anything; spareTxRows is
	// the weight of one transaction of a fold then.
	spareBytes  = 256 << 10
	spareTxRows = 128
)

// NewReserve returns the reserve in a file. The file is made when a page needs it.
func NewReserve(fsys vfs.FS, name string) *Reserve { return &Reserve{fs: fsys, name: name} }

// WithReserve calls fn, which frees space or prepares that. When the disk is full, it removes the
// reserve and calls fn again, with small transactions of the index. If the reserve could not be
// made at full length, it does so at once: a large transaction that fails leaves the index longer.
// fn learns whether the reserve is lent. Errors are those of fn and of ctx.
func (s *Store) WithReserve(ctx context.Context, fn func(lent bool) error) error {
	r := s.o.Reserve
	if !r.isScarce() {
		if err := fn(false); err == nil || !errors.Is(err, base.ErrNoSpace) {
			return err
		}
	}
	if err := s.foldTurn.Take(ctx); err != nil { // no large transaction takes the space
		return err
	}
	r.lend()
	s.foldTurn.Give()
	defer func() {
		r.giveBack()
		s.keepReserve()
	}()
	return fn(true)
}

// keepReserve ensures that there is a reserve, if the page is long enough.
func (s *Store) keepReserve() {
	segments := int64(0)
	for _, g := range s.log.Segments() {
		segments += int64(g.SyncedEnd)
	}
	if segments >= reserveFrom {
		s.o.Reserve.keep()
	}
}

// rowsOfTx is the weight that one transaction of a fold writes. The caller holds the fold turn.
func (s *Store) rowsOfTx() int {
	if s.o.Reserve.isLent() {
		return min(s.foldTxRows, spareTxRows)
	}
	return s.foldTxRows
}

func (r *Reserve) isScarce() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scarce
}

func (r *Reserve) isLent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lent > 0
}

// lend removes the file until giveBack is called as often.
func (r *Reserve) lend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lent++; r.lent == 1 && r.name != "" {
		_ = r.fs.Remove(r.name) // there is none, or it is of no use
		r.bytes, r.known, r.scarce = 0, true, true
	}
}

func (r *Reserve) giveBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent--
}

// keep restores the file to its full length, or to what the disk allows. There is none where that
// fails.
func (r *Reserve) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.name == "" || r.lent > 0 {
		return
	}
	if !r.known {
		r.known = true
		if info, err := r.fs.Stat(r.name); err == nil {
			r.bytes = info.Size
		}
	}
	if r.bytes == reserveBytes {
		return
	}
	if err := r.fs.Remove(r.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	r.bytes = 0
	for want := int64(reserveBytes); want >= minReserve; want -= want / 8 {
		err := allocate(r.fs, r.name, want)
		if err == nil {
			r.bytes, r.scarce = want, r.scarce && want < reserveBytes
			return
		}
		_ = r.fs.Remove(r.name)
		if !errors.Is(err, base.ErrNoSpace) {
			return
		}
	}
}

// allocate makes a file that takes the given space, on systems that can do so without writing it.
func allocate(fsys vfs.FS, name string, bytes int64) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if err = f.Preallocate(bytes); err == nil {
		err = f.Truncate(bytes)
	}
	return errors.Join(err, f.Close())
}
