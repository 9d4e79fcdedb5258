package storage

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
	mapbtree "github.com/tidwall/btree"
)

// overlay holds what is in the log and not yet in the index: the batches after the index's
// position, and the group that is being collected or appended. It answers look-ups of pieces,
// commits and tags.
type overlay struct {
	mu      *sync.RWMutex             // Store.mu
	pieces  map[uint64]*op            // guarded by mu; records that store pieces, by pieceKey
	commits *pendingCommits           // guarded by mu; durable and chained ones
	parents map[commit.ID]int         // guarded by mu; counts commits from other devices with that parent
	pruned  map[commit.ID]*op         // guarded by mu; records that prune commits
	touched map[object.Digest][]touch // guarded by mu; in the order of the log, see touch
	batches []*pendingBatch           // guarded by mu; durable ones in order of their numbers
	rows    int                       // guarded by mu; weights of the records in batches
	bytes   int64                     // guarded by mu; bytes of small records pending in batches
	folds   uint64                    // guarded by mu; how often drop has been called
	changes uint64                    // guarded by mu; counts batches that may change which commits are unsynced
}

// pendingBatch is a durable batch that the index does not reflect yet.
type pendingBatch struct {
	info  segment.BatchInfo
	parts [][]op // the overlay's maps point to records, so that these slices never grow
	rows  int
	bytes int64
	alone bool // of deletions, which share their batch with nothing else
	// syncs are the records that sync reads repeatedly: commits with their explanations, tags,
	// metadata, and changes of their status. Most records of a batch are nodes.
	syncs []*op
}

func newOverlay(mu *sync.RWMutex) *overlay {
	return &overlay{
		mu: mu, pieces: map[uint64]*op{}, commits: newPendingCommits(),
		parents: map[commit.ID]int{},
		touched: map[object.Digest][]touch{}, pruned: map[commit.ID]*op{},
	}
}

// pendingCommits are commits in the order of their ids.
type pendingCommits = mapbtree.BTreeG[pendingCommit]

type pendingCommit struct {
	id     commit.ID
	commit *commit.Commit
}

func newPendingCommits() *pendingCommits {
	less := func(a, b pendingCommit) bool { return a.id.Compare(b.id) < 0 }
	return mapbtree.NewBTreeGOptions(less, mapbtree.Options{NoLocks: true})
}

// pieceKey is eight random bytes of a digest. A map of whole digests takes 150 bytes for each of
// the 100 000 nodes that may be pending.
func pieceKey(d *object.Digest) uint64 { return binary.LittleEndian.Uint64(d[1:]) }

// storedLocked returns the first record in the log that stores a piece, or nil. Records whose
// digests share a key form a chain in no order; it rarely has more than one.
func (ov *overlay) storedLocked(d *object.Digest) (first *op) {
	for o := ov.pieces[pieceKey(d)]; o != nil; o = o.next {
		if o.digest == *d && (first == nil || !o.after(first)) {
			first = o
		}
	}
	return first
}

// look returns a record that stores a piece. touched reports that records of sync or of deletion
// about the piece are pending: the piece may then not be held, as stateOf decides.
func (ov *overlay) look(d *object.Digest) (o op, ok, touched bool) {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	touched = len(ov.touched) > 0 && ov.touched[*d] != nil
	if o := ov.storedLocked(d); o != nil {
		return *o, true, touched
	}
	return op{}, false, touched
}

// lastPiece returns the last record in the log that stores a piece.
func (ov *overlay) lastPiece(d *object.Digest) (op, bool) {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	var last *op
	for o := ov.pieces[pieceKey(d)]; o != nil; o = o.next {
		if o.digest == *d && (last == nil || o.after(last)) {
			last = o
		}
	}
	if last == nil {
		return op{}, false
	}
	return *last, true
}

// foreignParents returns the parents of a commit from another device: they may have been given up
// before. Parents of a commit made on this device are in the page, or damaged.
func (o *op) foreignParents() []commit.ID {
	if o.origin == originLocal {
		return nil
	}
	return o.commit.Parents
}

// isPruned reports whether a pending record prunes a commit.
func (ov *overlay) isPruned(id commit.ID) bool {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	return ov.pruned[id] != nil
}

// commitOrParent is commit that also reports whether a commit from another device has id as parent.
func (ov *overlay) commitOrParent(id commit.ID) (c *commit.Commit, isParent bool) {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	p, _ := ov.commits.Get(pendingCommit{id: id})
	return p.commit, ov.parents[id] > 0
}

// showLocked makes the pieces and commits of ops visible.
func (ov *overlay) showLocked(ops []op) {
	for i := range ops {
		switch o := &ops[i]; {
		case o.stored():
			ov.showPieceLocked(o)
		case o.kind == recCommit:
			c := o.commit
			delete(ov.pruned, c.ID)
			p := pendingCommit{c.ID, c}
			if _, there := ov.commits.Get(p); !there {
				ov.commits.Set(p)
				for _, p := range o.foreignParents() {
					ov.parents[p]++
				}
			}
		case o.sync != nil:
			ov.showSyncLocked(o)
		}
	}
}

// showPieceLocked puts a record into the chain of its key. The record may be there.
func (ov *overlay) showPieceLocked(o *op) {
	ov.hidePieceLocked(o)
	k := pieceKey(&o.digest)
	o.next, ov.pieces[k] = ov.pieces[k], o
}

func (ov *overlay) hidePieceLocked(o *op) {
	k := pieceKey(&o.digest)
	switch before := ov.pieces[k]; {
	case before != o:
		for before != nil && before.next != o {
			before = before.next
		}
		if before != nil {
			before.next = o.next
		}
	case o.next != nil:
		ov.pieces[k] = o.next
	default:
		delete(ov.pieces, k)
	}
	o.next = nil
}

// hideLocked reverts showLocked.
func (ov *overlay) hideLocked(ops []op) {
	for i := range ops {
		switch o := &ops[i]; {
		case o.stored():
			ov.hidePieceLocked(o)
		case o.kind == recCommit:
			p := pendingCommit{o.commit.ID, o.commit}
			if there, _ := ov.commits.Get(p); there == p {
				ov.commits.Delete(p)
				for _, p := range o.foreignParents() {
					if ov.parents[p]--; ov.parents[p] == 0 {
						delete(ov.parents, p)
					}
				}
			}
		case o.sync != nil:
			ov.hideSyncLocked(o)
		}
	}
}

// settleLocked takes a batch that has become durable: its records get places and need their content
// no more. Places are in the order of the records.
func (ov *overlay) settleLocked(parts [][]op, done segment.Appended) {
	n := 0
	for _, ops := range parts {
		for i := range ops {
			o := &ops[i]
			o.place, o.content, o.number, o.ord = done.Places[n], nil, done.Number, uint32(n)
			n++
		}
	}
	ov.addLocked(parts, done.BatchInfo)
}

// add takes a batch read from the log; its records have places.
func (ov *overlay) add(ops []op, info segment.BatchInfo) {
	ov.mu.Lock()
	defer ov.mu.Unlock()
	ov.addLocked([][]op{ops}, info)
}

func (ov *overlay) addLocked(parts [][]op, info segment.BatchInfo) {
	b := &pendingBatch{info: info, parts: parts}
	for _, ops := range parts {
		for i := range ops {
			b.rows += ops[i].weight()
			b.alone = b.alone || ops[i].kind == recDeleted
			if forSync(ops[i].kind) {
				b.syncs = append(b.syncs, &ops[i])
			}
			if ops[i].kind != recPiece {
				b.bytes += int64(ops[i].place.Length)
			}
		}
		ov.showLocked(ops)
	}
	i := len(ov.batches)
	for i > 0 && ov.batches[i-1].info.Number > info.Number {
		i--
	}
	ov.batches = slices.Insert(ov.batches, i, b)
	if len(b.syncs) > 0 {
		ov.changes++
	}
	ov.rows += b.rows
	ov.bytes += b.bytes
}

// upTo returns the batches with numbers up to n, with at most about maxRows rows. A batch of
// deletions is returned alone.
func (ov *overlay) upTo(n uint64, maxRows int) []*pendingBatch {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	rows, i := 0, 0
	for i < len(ov.batches) {
		b := ov.batches[i]
		rows += b.rows
		if b.info.Number > n || i > 0 && (rows > maxRows || b.alone || ov.batches[i-1].alone) {
			break
		}
		i++
	}
	return append([]*pendingBatch(nil), ov.batches[:i]...)
}

// drop forgets the first n batches, which the index now reflects.
func (ov *overlay) drop(n int) {
	ov.mu.Lock()
	defer ov.mu.Unlock()
	ov.folds++
	for _, b := range ov.batches[:n] {
		for _, ops := range b.parts {
			ov.hideLocked(ops)
		}
		ov.rows -= b.rows
		ov.bytes -= b.bytes
	}
	clear(ov.batches[:n])
	ov.batches = ov.batches[n:]
	if len(ov.batches) == 0 {
		ov.batches = nil
	}
	if len(ov.touched) == 0 { // a map never shrinks
		ov.touched = map[object.Digest][]touch{}
	}
	if len(ov.pieces) == 0 {
		ov.pieces = map[uint64]*op{}
	}
}

// takeBackLocked forgets the batches of a segment from start on.
func (ov *overlay) takeBackLocked(segment uint32, start uint64) {
	ov.batches = slices.DeleteFunc(ov.batches, func(b *pendingBatch) bool {
		if b.info.Segment != segment || b.info.Start < start {
			return false
		}
		for _, ops := range b.parts {
			ov.hideLocked(ops)
		}
		ov.rows -= b.rows
		ov.bytes -= b.bytes
		return true
	})
}

func (ov *overlay) pending() (rows int, bytes int64) {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	return ov.rows, ov.bytes
}

// forSync reports whether records of a kind are kept in pendingBatch.syncs.
func forSync(kind byte) bool {
	switch kind {
	case recCommit, recExplain, recTag, recTagReceived, recTagSynced, recStatus, recMetadata, recPruned:
		return true
	}
	return false
}

// eachSyncLocked calls fn with every pending record that forSync is for, in the order of the log.
// folds is that of foldsNow.
func (ov *overlay) eachSyncLocked(fn func(o *op)) (folds uint64) {
	for _, b := range ov.batches {
		for _, o := range b.syncs {
			fn(o)
		}
	}
	return ov.folds
}

// foldsNow returns how often drop has been called.
func (ov *overlay) foldsNow() uint64 {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	return ov.folds
}

// changesNow returns a number that changes whenever commits may have become unsynced or synced.
func (ov *overlay) changesNow() uint64 {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	return ov.changes
}

// changed changes the number of changesNow.
func (ov *overlay) changed() {
	ov.mu.Lock()
	defer ov.mu.Unlock()
	ov.changes++
}
