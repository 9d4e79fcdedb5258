package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/vfs"
)

// leaver is a page that may leave, from when that was found until it is gone or stays. Pages that
// leave together share the syncs of their directory.
type leaver struct {
	key     pageKey
	d       departure
	st      *standing
	s       *pageStore // has the page's place among the open ones; nil when nothing is to be done
	decided func()     // ends what beginLeaving began
	done    departed
	err     error

	file vfs.File // {page}.away, until it is synced
	gone string   // the new name of the page's directory, "" while it has its own
}

// goes reports whether nothing yet keeps the page from leaving.
func (l *leaver) goes() bool { return l.err == nil && l.done.bar == EvictFree }

// offer lets who wants to open the page have its place, until leaveTogether takes it back. Who came
// while it was looked at has it at once.
func (r *Repository) offer(l *leaver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.s.offered = true
	if l.s.wanted {
		l.s.takeOfferedLocked()
	}
}

// takeOfferedLocked gives the place of a page that was to leave to who wants to open it. repo.mu is
// held.
func (s *pageStore) takeOfferedLocked() {
	s.offered = false
	s.freeLocked()
}

// freePlace gives the place up that reserveToLeave has taken.
func (r *Repository) freePlace(s *pageStore) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.freeLocked()
}

func (s *pageStore) freeLocked() {
	delete(s.repo.pages, s.key)
	s.err = errLeaving
	close(s.ready)
	close(s.gone)
}

// leaveTogether has pages leave that prepareToLeave has looked at, and sets done and err of each.
// Pages whose place somebody has taken stay.
//
// What one needs on the disk before the next step (A2) is synced for all of them: the files
// {page}.away, the directory with their names, and the directory with the pages renamed. When
// something of that fails, the pages that it concerns stay.
func (r *Repository) leaveTogether(ctx context.Context, all []*leaver) {
	all = slices.DeleteFunc(slices.Clone(all), func(l *leaver) bool { return l.s == nil })
	if len(all) == 0 {
		return
	}
	placed := r.decide(ctx, all)
	for _, l := range placed {
		r.stage("decided", l.key)
		l.err = r.createAbsence(l)
	}
	for _, l := range placed {
		l.syncAbsence()
	}
	r.syncDirsOf(placed, "make it durable why the page is away")
	for _, l := range placed {
		r.renameAway(l)
	}
	r.syncDirsOf(placed, "make it durable that the page is away")
	for _, l := range placed {
		r.settleLeft(l)
		r.freePlace(l.s)
	}
	for _, l := range placed {
		if !l.goes() {
			continue
		}
		r.stage("gone", l.key)
		if err := r.fs.RemoveAll(l.gone); err != nil { // A4
			l.err = fmt.Errorf("remove what is left of the page: %w", err)
		}
	}
	for _, l := range all {
		l.decided()
	}
}

// decide settles which pages go, and returns those: from here on who wants to open them waits until
// they are gone.
func (r *Repository) decide(ctx context.Context, all []*leaver) (placed []*leaver) {
	for _, l := range all {
		r.judgeAgain(l)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range all {
		switch {
		case !l.goes():
			if l.s.offered {
				l.s.takeOfferedLocked()
			}
		case !l.s.offered:
			l.done = departed{bar: EvictOpen, reason: "it was opened meanwhile"}
		case ctx.Err() != nil:
			l.err = ctx.Err()
			l.s.takeOfferedLocked()
		default:
			l.s.offered = false
			placed = append(placed, l)
		}
	}
	return placed
}

// judgeAgain looks whether another bucket was set since the page was looked at.
func (r *Repository) judgeAgain(l *leaver) {
	if l.st.bar != EvictFree || l.st.blank {
		return // that lets go of the page whatever the bucket is, or it had another bar that was lifted
	}
	st := *l.st
	if l.err = r.judgeBucket(&st); l.err == nil {
		l.done = l.d.judge(&st)
	}
}

// createAbsence writes why the page is away; syncAbsence syncs that. Beside the page's directory
// the file says nothing (A1), so it needs no other name meanwhile. A page that is evicted and that
// nobody has leaves nothing. One that is deleted always leaves the file: a bucket may have an older
// page of this id, or get one from another device, and that is not wanted here.
func (r *Repository) createAbsence(l *leaver) error {
	if l.st.at.At.Number == 0 && l.d.kind != layout.Deleted {
		return r.disk.RemoveAbsence(l.key)
	}
	a := &layout.Absence{
		Kind: l.d.kind, Bucket: [16]byte(l.st.at.Bucket), Number: l.st.at.At.Number, Since: max(r.clock.Now().UnixNano(), 0), SizeBytes: l.d.sizeBytes, Name: l.d.name,
	}
	path := r.disk.AwayFile(l.key)
	f, err := r.fs.Create(path)
	if errors.Is(err, fs.ErrExist) { // of a page that came back, when it could not be removed
		if err = r.fs.Remove(path); err == nil {
			f, err = r.fs.Create(path)
		}
	}
	if err == nil {
		l.file = f
		_, err = f.WriteAt(a.Encode(), 0)
	}
	if err != nil {
		return fmt.Errorf("write why page %s is not here: %w", l.key.Text(l.d.name), err)
	}
	return nil
}

// syncAbsence syncs and closes the file that createAbsence has made.
func (l *leaver) syncAbsence() {
	if l.file == nil {
		return
	}
	var err error
	if l.goes() {
		err = l.file.Sync()
	}
	if err = errors.Join(err, l.file.Close()); err != nil {
		l.err = errors.Join(l.err, fmt.Errorf("write why page %s is not here: %w", l.key.Text(l.d.name), err))
	}
}

// syncDirsOf syncs the directories of the pages that go. Where that fails they stay.
func (r *Repository) syncDirsOf(all []*leaver, what string) {
	synced := map[string]error{}
	for _, l := range all {
		if !l.goes() {
			continue
		}
		dir := filepath.Dir(r.disk.PageDir(l.key))
		err, done := synced[dir]
		if !done {
			err = r.fs.SyncDir(dir)
			synced[dir] = err
		}
		if err != nil {
			l.err = fmt.Errorf("%s: %w", what, err)
		}
	}
}

// renameAway gives the directory of a page its last name.
func (r *Repository) renameAway(l *leaver) {
	if !l.goes() {
		return
	}
	dir := r.disk.PageDir(l.key)
	gone := r.disk.GoneDir(l.key, r.departures.Add(1))
	if err := r.fs.Rename(dir, gone); err != nil {
		l.err = fmt.Errorf("rename the directory of the page: %w", err)
		return
	}
	l.gone = gone
}

// settleLeft ends what is in memory of a page that has left. One that stays gets its name back:
// whether it is here after a power cut is not known then, so nothing of it may be removed.
func (r *Repository) settleLeft(l *leaver) {
	dir := r.disk.PageDir(l.key)
	if !l.goes() {
		if l.gone != "" {
			l.err = errors.Join(l.err, r.fs.Rename(l.gone, dir))
		} else {
			l.err = errors.Join(l.err, r.disk.RemoveAbsence(l.key))
		}
		return
	}
	r.mu.Lock()
	delete(r.indexes, dir)
	r.mu.Unlock()
	r.pagesChanged()
	if l.d.usageStays {
		return
	}
	if err := r.usage.removed(l.key.Ledger, l.key.ID, l.d.kind == layout.Deleted); err != nil {
		r.o.Logger.Warn("the usage of a page that is away stays listed", "ledger", l.key.Ledger, "page", PageID(l.key.ID).String(), "error", err)
	}
}
