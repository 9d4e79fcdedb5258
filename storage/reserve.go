package storage

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// reserve is a file in the page's directory that keeps disk space free. On a full disk it is
// removed while garbage is collected and compacted: both need some space before they free any. The
// fold turn guards it.
type reserve struct {
	bytes  int64       // of the file
	known  bool        // bytes is up to date
	scarce atomic.Bool // since its removal there was no room for the full length
	lent   int         // number of callers that have removed it
	txRows int         // Store.foldTxRows before
}

const (
	reserveName = "reserve"
	// Pages whose segments take largePage or more have a reserve of maxReserve: room for the live
	// content of the longest batch that a journal streams to the log, and for the index. Smaller
	// pages have one of 1 / reserveShare of the segments, which suffices without large values.
	// Below minReserve there is none.
	largePage    = 32 << 20
	maxReserve   = streamBytes + 2<<20
	reserveShare = 8
	minReserve   = 64 << 10
	// spareBytes is how much Compact copies on a full disk before it frees anything; spareTxRows is
	// the weight of one transaction of a fold then.
	spareBytes  = 256 << 10
	spareTxRows = 128
)

// sparing calls fn. When the disk is full, it calls fn again without the reserve and with small
// transactions. If the reserve could not be made at full length, it does so at once: a large
// transaction that fails leaves the index longer. The caller does not hold the fold turn.
func (s *Store) sparing(ctx context.Context, fn func(spare bool) error) error {
	if !s.reserve.scarce.Load() {
		if err := fn(false); err == nil || !errors.Is(err, base.ErrNoSpace) {
			return err
		}
	}
	if err := s.foldTurn.take(ctx); err != nil {
		return err
	}
	s.lendReserve()
	s.foldTurn.release()
	defer func() {
		s.foldTurn.lock()
		if s.reserve.lent--; s.reserve.lent == 0 {
			s.foldTxRows = s.reserve.txRows
		}
		s.keepReserve()
		s.foldTurn.release()
	}()
	return fn(true)
}

// lendReserve removes the reserve. The caller holds the fold turn.
func (s *Store) lendReserve() {
	r := &s.reserve
	if r.lent++; r.lent > 1 {
		return
	}
	r.bytes, r.known, r.txRows = 0, true, s.foldTxRows
	r.scarce.Store(true)
	s.foldTxRows = min(s.foldTxRows, spareTxRows)
	_ = s.o.FS.Remove(s.reservePath()) // there is none, or it is of no use
}

func (s *Store) reservePath() string { return filepath.Join(s.o.Dir, reserveName) }

// keepReserve restores the reserve to its full length, or to what the disk allows. A page does
// without one where that fails, and in memory. The caller holds the fold turn.
func (s *Store) keepReserve() {
	if _, memory := s.o.FS.(*vfs.Mem); memory {
		return
	}
	segments := int64(0)
	for _, g := range s.log.Segments() {
		segments += int64(g.SyncedEnd)
	}
	want := segments / reserveShare
	if segments >= largePage {
		want = maxReserve
	}
	r := &s.reserve
	if r.lent > 0 {
		return
	}
	if want < minReserve && r.bytes == 0 {
		r.scarce.Store(false)
		return
	}
	name := s.reservePath()
	if !r.known {
		r.known = true
		if info, err := s.o.FS.Stat(name); err == nil {
			r.bytes = info.Size
		}
	}
	if r.bytes >= want-want/8 && r.bytes <= 2*want && !r.scarce.Load() {
		return
	}
	if err := s.o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	full := want
	for r.bytes = 0; want >= minReserve; want -= want / 8 {
		err := allocate(s.o.FS, name, want)
		if err == nil {
			r.bytes = want
			r.scarce.Store(r.scarce.Load() && want < full)
			return
		}
		_ = s.o.FS.Remove(name)
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
