package vfs

import "sync"

// ShareSyncs returns fsys with calls of SyncDir for one directory that come at the same time done
// together: each is answered by a sync that began after the call.
func ShareSyncs(fsys FS) FS { return &syncSharer{FS: fsys, dirs: map[string]*sharedDir{}} }

type syncSharer struct {
	FS
	mu   sync.Mutex
	dirs map[string]*sharedDir // guarded by mu
}

// sharedDir is a directory that is being synced, or about to be.
type sharedDir struct {
	running chan struct{} // holds a token while it is synced
	next    *dirSync      // guarded by syncSharer.mu; not yet begun, nil when there is none
	users   int           // guarded by syncSharer.mu
}

// dirSync is one sync of a directory.
type dirSync struct {
	done chan struct{}
	err  error // set before done is closed
}

// SyncDir implements FS.
func (s *syncSharer) SyncDir(dir string) error {
	s.mu.Lock()
	d := s.dirs[dir]
	if d == nil {
		d = &sharedDir{running: make(chan struct{}, 1)}
		s.dirs[dir] = d
	}
	if mine := d.next; mine != nil {
		s.mu.Unlock()
		<-mine.done
		return mine.err
	}
	mine := &dirSync{done: make(chan struct{})}
	d.next = mine
	d.users++
	s.mu.Unlock()
	d.running <- struct{}{}
	s.mu.Lock()
	d.next = nil
	s.mu.Unlock()
	mine.err = s.FS.SyncDir(dir)
	<-d.running
	close(mine.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(s.dirs, dir)
	}
	return mine.err
}
