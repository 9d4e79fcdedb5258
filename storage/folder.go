package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// foldDue reports whether enough is pending for a fold.
func (s *Store) foldDue() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.foldDueLocked()
}

func (s *Store) foldDueLocked() bool {
	return s.over.rows >= s.o.FoldRows || s.over.bytes >= s.o.FoldBytes
}

// wantFoldLocked wakes the folder when a fold is due.
func (s *Store) wantFoldLocked() {
	if s.foldDueLocked() {
		select {
		case s.foldWanted <- struct{}{}:
		default:
		}
	}
}

// runFolder folds on request, until ctx is done. Open starts it, Close stops it and waits for it.
func (s *Store) runFolder(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.foldWanted:
		}
		if err := s.foldWhile(ctx, s.foldDue); err != nil && ctx.Err() == nil {
			s.noteFoldFailure(err)
		}
	}
}

// noteFoldFailure makes writers fail that would wait for an impossible fold. The log is complete,
// so that readers continue, and the next open folds again. After a full disk the next writer does.
func (s *Store) noteFoldFailure(err error) {
	s.o.Logger.Error("fold failed", "page", fmt.Sprintf("%x", s.o.Page), "error", err)
	s.mu.Lock()
	if errors.Is(err, base.ErrNoSpace) {
		s.unfolded = err
	} else if s.poisoned == nil {
		s.poisoned = fmt.Errorf("page is read-only until it is opened again: %w: fold: %w", base.ErrReadOnly, err)
	}
	s.folded.tell()
	s.mu.Unlock()
}

// waitRoom waits while the pending amount is at least one and a half times that at which a fold
// begins.
func (s *Store) waitRoom(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.over.rows < s.o.FoldRows+s.o.FoldRows/2 && s.over.bytes < s.o.FoldBytes+s.o.FoldBytes/2 {
			s.mu.Unlock()
			return nil
		}
		told, full, err := s.folded.wait(), s.unfolded != nil, s.writableLocked()
		s.unfolded = nil
		if !full {
			s.wantFoldLocked()
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if full {
			if err := s.Fold(ctx); err != nil {
				if ctx.Err() == nil {
					s.noteFoldFailure(err)
				}
				return fmt.Errorf("bring the index up to date: %w", err)
			}
			continue
		}
		select {
		case <-told:
		case <-ctx.Done():
			return fmt.Errorf("wait for the index to catch up: %w", ctx.Err())
		}
	}
}
