package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// A journal that exceeds streamBytes goes to a bulk segment, in batches of that size, so that small
// commits do not queue after it. So does one that exceeds commitBytes when it is submitted.
const (
	streamBytes = 4 << 20
	commitBytes = 1 << 20
	smallBytes  = 4 << 10 // holds a commit of one key
)

// journaling is the state of the page's journals.
type journaling struct {
	journals  map[*Journal]struct{} // guarded by mu; open ones
	nextJourn uint64                // guarded by mu
	wants     wants                 // what journals rely on and what is being deleted
}

// Journal collects the new pieces of one transaction. A small journal stays in memory and goes to
// the log with its commit; a larger one streams to a segment of its own. It ends
// with Store.Submit or Rollback. It is a btree.Sink, and a btree.Source and split.Source for the
// pieces of itself and of the page. It is safe for concurrent use, since values may be read while
// others are written; calls wait for each other, also while one waits for the disk or the network.
type Journal struct {
	turn  sync.Mutex // held by each call; guards all fields but heads, spans and relies
	s     *Store
	id    uint64
	epoch uint64
	seen  uint64        // prunes of the page when the journal began
	part  *journalPart  // being filled
	busy  *journalPart  // being appended, nil when none is
	spare *journalPart  // an empty part that reuses the memory of an appended one
	wait  chan struct{} // closed when busy has been appended
	err   error         // of the last append; valid once wait is closed
	over  bool
	out   *segment.Stream // released when the journal is over

	header headerRoom
	script []byte // of the last difference

	explained []op // of kind recExplain

	heads  [2][]*commit.Commit // the durable and chained heads when the journal began: not pruned while it is open
	spans  []logSpan           // guarded by Store.mu; where its pieces are in the log
	relies reliance            // guarded by Store.mu
}

// journalPart is a batch of pieces and nodes with its records, in the same order.
type journalPart struct {
	batch *segment.Batch
	grown bool // batch has room for streamBytes
	ops   []op
	mine  map[object.Digest]int // index into ops of the stored pieces
}

// NewJournal begins a journal. It must end with Submit or Rollback.
func (s *Store) NewJournal() *Journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextJourn++
	j := &Journal{s: s, id: s.nextJourn, epoch: s.epoch, seen: s.prunes, heads: [2][]*commit.Commit{s.heads, s.chained}}
	s.journals[j] = struct{}{}
	return j
}

// Pruned reports whether commits were pruned since the journal began. A caller that has read the
// history meanwhile may have read a part before that and a part after.
func (j *Journal) Pruned() bool {
	j.s.mu.RLock()
	defer j.s.mu.RUnlock()
	return j.s.prunes != j.seen
}

// add appends a record to the part that is being filled.
func (j *Journal) add(o op, content []byte) {
	if j.part == nil {
		j.part, j.spare = j.spare, nil
	}
	if j.part == nil {
		j.part = &journalPart{batch: segment.NewBatch(), mine: map[object.Digest]int{}}
	}
	p := j.part
	switch n := p.batch.Bytes(); {
	case n == 0:
		p.batch.Grow(smallBytes)
	case !p.grown && n >= commitBytes:
		p.grown = true // it will reach streamBytes: grow at once, to copy no more
		p.batch.Grow(streamBytes - n + smallBytes)
	}
	j.header.add(p.batch, &o, content)
	p.ops = append(p.ops, o)
	if o.stored() {
		p.mine[o.digest] = len(p.ops) - 1
	}
}

// content returns the content of record i of the part, after its header.
func (p *journalPart) content(i int) []byte {
	header := object.DigestSize
	if p.ops[i].kind == recDelta {
		header += object.DigestSize + 1
	}
	return p.batch.Payload(i)[header:]
}

// find returns a piece that the journal holds in memory.
func (j *Journal) find(d *object.Digest) (op, bool) {
	for _, p := range []*journalPart{j.part, j.busy} {
		if p == nil {
			continue
		}
		if i, ok := p.mine[*d]; ok {
			// Without the place, which may be written meanwhile.
			o := &p.ops[i]
			return op{kind: o.kind, depth: o.depth, bare: o.bare, digest: o.digest, base: o.base, content: p.content(i)}, true
		}
	}
	return op{}, false
}

// HasPieces reports whether the journal holds pieces of values that it has not passed to the log.
func (j *Journal) HasPieces() bool {
	j.turn.Lock()
	defer j.turn.Unlock()
	return j.part != nil && slices.ContainsFunc(j.part.ops, func(o op) bool { return o.kind == recPiece })
}

// PutPiece adds a piece of a value. A piece that the page holds already is not stored again.
// content is not retained. The call may wait for the disk when more than about 8 MiB are unwritten.
func (j *Journal) PutPiece(ctx context.Context, d object.Digest, content []byte) error {
	j.turn.Lock()
	defer j.turn.Unlock()
	if len(content) > limits.MaxPieceBytes {
		return fmt.Errorf("put piece %s of %d bytes: %w", d.Short(), len(content), base.ErrTooLarge)
	}
	if err := j.makeRoom(ctx, len(content)); err != nil {
		return err
	}
	if _, ok := j.find(&d); ok {
		return nil
	}
	held, err := j.holds(&d)
	if err == nil && !held {
		j.add(op{kind: recPiece, digest: d}, content)
	}
	return err
}

// PutNode adds a tree node: as a difference to its base where that is shorter, else whole.
func (j *Journal) PutNode(ctx context.Context, n btree.NewNode) error {
	j.turn.Lock()
	defer j.turn.Unlock()
	if err := j.makeRoom(ctx, len(n.Content)); err != nil {
		return err
	}
	if _, ok := j.find(&n.Digest); ok {
		return nil
	}
	script, depth, err := j.difference(ctx, &n)
	if err != nil {
		return err
	}
	if script != nil {
		b := n.Base
		j.add(op{kind: recDelta, digest: n.Digest, base: &b, depth: depth, bare: n.View.NamesNothing()}, script)
	} else {
		j.add(op{kind: recNode, digest: n.Digest, bare: n.View.NamesNothing()}, n.Content)
	}
	j.cache(&n)
	return nil
}

// cache keeps a new node for the next reader of the tree. It skips leaves of a bulk load that
// replace nothing: they would only evict nodes in use.
func (j *Journal) cache(n *btree.NewNode) {
	if j.out == nil || n.View.Level() > 0 || !n.Base.IsZero() {
		j.s.cache.add(j.s, &n.Digest, n.View, bytes.Clone(n.Content), 0, unknownDepth)
	}
}

// dropHeld takes out the nodes that the page holds already. It looks them up together, shortly
// before they go to the log: one look-up for each new node would take longer than making the node.
// No append is in flight. It passes on what exceeds a batch.
func (j *Journal) dropHeld(ctx context.Context) error {
	p := j.part
	if p == nil {
		return nil
	}
	made := j.s.wants.made.Load()
	held := map[int]uint8{}                 // the depth at which it is stored
	unsure, dead := []int{}, map[int]bool{} // nodes with other pending records; nodes that are there as a base only
	err := j.s.view(func(tx index.Tx) error {
		clear(held)
		clear(dead)
		unsure = unsure[:0]
		for i := range p.ops {
			o := &p.ops[i]
			if o.kind != recNode && o.kind != recDelta {
				continue
			}
			stored, ok, touched := j.s.over.look(&o.digest)
			if ok && !touched {
				held[i] = stored.depth
				continue
			}
			if touched {
				unsure = append(unsure, i)
			}
			row, ok, err := readObjectRow(tx, &o.digest)
			if err != nil {
				return err
			}
			switch {
			case ok && row.held && !touched:
				held[i] = row.depth
			case ok && (row.dead || touched):
				dead[i] = true
			}
		}
		return nil
	})
	if err == nil {
		err = j.relyOn(p, made, held, dead, unsure)
	}
	if err != nil || len(held) == 0 && len(dead) == 0 {
		return err
	}
	old := *p
	p.batch, p.ops = segment.NewBatch(), p.ops[:0] // in the memory of old, which is ahead
	p.batch.Grow(old.batch.Bytes())
	clear(p.mine)
	depths := map[object.Digest]uint8{} // of nodes that are not stored as deep as the journal assumed
	for i := range old.ops {
		o := old.ops[i]
		if depth, ok := held[i]; ok {
			depths[o.digest] = depth
			continue
		}
		content := old.content(i)
		if dead[i] {
			depths[o.digest] = 0
		}
		if o.kind == recDelta && dead[i] { // a stored difference to it may be the base of this one
			if content, err = j.undelta(ctx, &o, content); err != nil {
				j.err = err
				return err
			}
		} else if o.kind == recDelta {
			if depth, ok := depths[*o.base]; ok {
				if content, err = j.deepen(ctx, &o, depth, content); err != nil {
					j.err = err // some records are lost: the journal is of no use
					return err
				}
				depths[o.digest] = o.depth
			}
		}
		if j.part != nil && j.part.batch.Bytes()+len(content) > streamBytes { // whole nodes are longer
			if err := j.pass(ctx); err != nil {
				j.err = err // as above
				return err
			}
		}
		j.add(o, content)
	}
	return nil
}

// deepen makes o a difference to a base that was found at another depth, or a whole node if that is
// too deep, and returns the content of the record.
func (j *Journal) deepen(ctx context.Context, o *op, depth uint8, script []byte) ([]byte, error) {
	if depth < maxDeltaDepth {
		o.depth = depth + 1
		return script, nil
	}
	return j.undelta(ctx, o, script)
}

// undelta makes o a whole node and returns its content.
func (j *Journal) undelta(ctx context.Context, o *op, script []byte) ([]byte, error) {
	b, err := j.node(ctx, *o.base)
	if err != nil {
		return nil, err
	}
	content, err := btree.ApplyDelta(b, script)
	if err != nil {
		return nil, fmt.Errorf("write node %s whole: %w", o.digest.Short(), err)
	}
	o.kind, o.base, o.depth = recNode, nil, 0
	return content, nil
}

// difference returns the script that makes n from its base, and the depth of n; the script is nil
// when n is to be written whole.
func (j *Journal) difference(ctx context.Context, n *btree.NewNode) ([]byte, uint8, error) {
	if n.Base.IsZero() {
		return nil, 0, nil
	}
	depth, ok, err := j.depthOf(&n.Base)
	if err != nil || !ok || depth >= maxDeltaDepth {
		return nil, 0, err
	}
	b, err := j.node(ctx, n.Base)
	if err != nil {
		return nil, 0, err
	}
	j.script = btree.AppendDelta(j.script[:0], b, n.View)
	if len(j.script)+object.DigestSize+1 >= len(n.Content) {
		return nil, 0, nil
	}
	return j.script, depth + 1, nil
}

// depthOf returns how many differences lie between a stored node and one that is stored whole.
func (j *Journal) depthOf(d *object.Digest) (uint8, bool, error) {
	if o, ok := j.find(d); ok {
		return o.depth, true, nil
	}
	made := j.s.wants.made.Load()
	if !j.want(d) { // from here on a held node stays
		return 0, false, nil
	}
	e := j.s.cache.find(j.s, d)
	if e != nil {
		if known, ok := e.knownDepth(j.s.wants.made.Load()); ok {
			return known, true, nil
		}
	}
	l, ok, err := j.s.locate(d, false)
	ok = ok && err == nil
	if e != nil && ok && l.content == nil {
		e.setDepth(made, int32(l.depth))
	}
	return l.depth, ok, err
}

// Piece returns a piece that the journal or the page holds, as Store.Piece does. Once the journal
// is over, Piece fails with base.ErrTxDone, as Near and Node do: its pieces may be on the way to
// the log.
func (j *Journal) Piece(ctx context.Context, d object.Digest) ([]byte, error) {
	return j.piece(ctx, d, true)
}

// Near implements split.Far.
func (j *Journal) Near(ctx context.Context, d object.Digest) ([]byte, error) {
	return j.piece(ctx, d, false)
}

func (j *Journal) piece(ctx context.Context, d object.Digest, far bool) ([]byte, error) {
	j.turn.Lock()
	defer j.turn.Unlock()
	if err := j.usable(); err != nil {
		return nil, err
	}
	if o, ok := j.find(&d); ok && o.kind == recPiece {
		return append([]byte(nil), o.content...), nil
	}
	return j.s.piece(ctx, d, far)
}

// Bring implements split.Far.
func (j *Journal) Bring(ctx context.Context, ds []object.Digest) error {
	j.turn.Lock()
	defer j.turn.Unlock()
	return j.s.Bring(ctx, ds)
}

// Node returns a tree node that the journal or the page holds, as Store.Node does.
func (j *Journal) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	j.turn.Lock()
	defer j.turn.Unlock()
	if err := j.usable(); err != nil {
		return nil, err
	}
	return j.node(ctx, d)
}

// node is Node for a caller that holds the turn.
func (j *Journal) node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	if n := j.s.cached(&d, j); n != nil {
		return n, nil
	}
	return j.s.readNode(ctx, d, j)
}

// Explain gives a merge commit its explanation: a tree of decisions (docs/format/records.md), which
// is not empty and whose new nodes and pieces the journal holds. The explanation becomes durable
// with the commit, which must be among those passed to Submit with the journal. When the page has
// the commit already, nothing is added: the first explanation of a commit counts.
func (j *Journal) Explain(merge commit.ID, root object.Digest) {
	j.turn.Lock()
	defer j.turn.Unlock()
	j.explained = append(j.explained, op{kind: recExplain, merge: &merge, digest: root})
}

// checkExplained refuses explanations that are invalid, or not of a merge among cs.
func (j *Journal) checkExplained(cs []*commit.Commit) error {
	for i := range j.explained {
		o := &j.explained[i]
		if err := checkExplanation(*o.merge, &o.digest); err != nil {
			return err
		}
		if !slices.ContainsFunc(cs, func(c *commit.Commit) bool { return c.ID == *o.merge && len(c.Parents) == 2 }) {
			return fmt.Errorf("explanation of %s, which is no merge that is submitted with it: %w", *o.merge, base.ErrInvalid)
		}
	}
	return nil
}

// explanationsOf returns the records of j, which may be nil, that explain the given commits.
func (j *Journal) explanationsOf(rs []ReceivedCommit) (out []op) {
	if j == nil {
		return nil
	}
	for _, o := range j.explained {
		if slices.ContainsFunc(rs, func(r ReceivedCommit) bool { return r.Commit.ID == *o.merge }) {
			out = append(out, o)
		}
	}
	return out
}

func (j *Journal) usable() error {
	if j.over {
		return fmt.Errorf("journal: %w", base.ErrTxDone)
	}
	return nil
}

// makeRoom passes the part in memory on when it would exceed streamBytes with n more bytes: the
// reserve has room for a batch of that length.
func (j *Journal) makeRoom(ctx context.Context, n int) error {
	if err := j.usable(); err != nil || j.part == nil || j.part.batch.Bytes()+n <= streamBytes {
		return err
	}
	return j.startFlush(ctx)
}

// Flush writes the part in memory to the log, and waits until it is durable. Errors are those of
// the disk; the journal is of no use after one.
func (j *Journal) Flush(ctx context.Context) error {
	j.turn.Lock()
	defer j.turn.Unlock()
	return j.flush(ctx)
}

func (j *Journal) flush(ctx context.Context) error {
	if err := j.startFlush(ctx); err != nil {
		return err
	}
	return j.finishFlush()
}

// startFlush passes the part in memory on, without the nodes that the page holds.
func (j *Journal) startFlush(ctx context.Context) error {
	if err := j.finishFlush(); err != nil {
		return err
	}
	if err := j.dropHeld(ctx); err != nil {
		return err
	}
	return j.pass(ctx)
}

// pass passes the part in memory to a goroutine that appends it, after the previous append has
// ended. The journal owns that goroutine: finishFlush waits for it, and Submit and Rollback call
// finishFlush.
func (j *Journal) pass(ctx context.Context) error {
	if err := j.finishFlush(); err != nil {
		return err
	}
	if j.part == nil || len(j.part.ops) == 0 {
		return nil
	}
	if err := j.s.waitRoom(ctx); err != nil {
		return err
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if err := j.s.writableLocked(); err != nil {
		return err
	}
	if j.out == nil {
		j.out = j.s.log.NewStream()
	}
	p, wait := j.part, make(chan struct{})
	j.busy, j.wait, j.part = p, wait, nil
	j.s.wg.Go(func() { // under mu: Close forbids new work under mu, and then waits
		defer close(wait)
		j.err = j.s.appendPart(j, p)
	})
	return nil
}

// finishFlush waits for the append in flight.
func (j *Journal) finishFlush() error {
	if j.wait == nil {
		return j.err
	}
	<-j.wait
	if b := j.busy; b != nil && j.err == nil {
		b.batch.Reset()
		clear(b.mine)
		j.spare = &journalPart{batch: b.batch, grown: b.grown, mine: b.mine, ops: make([]op, 0, len(b.ops))}
	}
	j.busy, j.wait = nil, nil
	return j.err
}

// appendPart appends a part to a bulk segment and shows its pieces.
func (s *Store) appendPart(j *Journal, p *journalPart) error {
	s.mu.Lock()
	for s.held {
		s.appended.Wait()
	}
	if err := s.writableLocked(); err != nil && !errors.Is(err, base.ErrClosed) {
		s.mu.Unlock()
		return err
	}
	a := s.beginAppendLocked()
	s.mu.Unlock()
	done, err := j.out.Append(p.batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.endAppendLocked(a)
	if err != nil {
		s.noteFailureLocked(err)
		return fmt.Errorf("append pieces to the page's log: %w", err)
	}
	s.over.settleLocked([][]op{p.ops}, done)
	j.spans = addSpan(j.spans, logSpan{done.Segment, done.Start, done.End})
	s.counters.bulkBatches.Add(1)
	s.wantFoldLocked()
	return nil
}

// prepare readies the journal for Submit with cs. It first writes what is too large for the
// commit's batch.
func (j *Journal) prepare(ctx context.Context, cs []*commit.Commit) error {
	if err := j.usable(); err != nil {
		return err
	}
	if err := j.checkExplained(cs); err != nil {
		return err
	}
	if err := j.finishFlush(); err != nil {
		return err
	}
	if err := j.dropHeld(ctx); err != nil {
		return err
	}
	if j.part != nil && j.part.batch.Bytes() > commitBytes {
		if err := j.pass(ctx); err != nil {
			return err
		}
	}
	return j.finishFlush()
}

// moveLocked moves the remaining records to the batch of a group and returns them, with room for
// more. An empty group takes the batch of the journal, without a copy. The journal is over.
func (j *Journal) moveLocked(g *group, more int) []op {
	var ops []op
	if p := j.part; p != nil {
		ops = make([]op, len(p.ops), len(p.ops)+more)
		first := g.batch.Len() == 0
		if first {
			g.batch = p.batch
		}
		for i := range p.ops {
			if !first {
				g.batch.Add(p.ops[i].kind, p.batch.Payload(i))
			}
			ops[i] = p.ops[i]
			ops[i].content = p.content(i)
		}
	}
	j.endLocked()
	return ops
}

func (j *Journal) endLocked() {
	j.over, j.part, j.spare = true, nil, nil
	delete(j.s.journals, j)
	if j.out != nil {
		j.out.Release()
	}
}

// Rollback gives the journal up. Its pieces in the log are garbage.
// Pieces of a journal that could not be written are cut off the log where nothing else can rely on
// them (see takeBack). Rollback does nothing after Submit or a second time.
func (j *Journal) Rollback() {
	j.turn.Lock()
	defer j.turn.Unlock()
	if j.over {
		return
	}
	// An error of the append no longer matters: nothing will rely on it, and the page records when
	// it cannot be written.
	_ = j.finishFlush()
	if len(j.spans) > 0 {
		j.s.counters.wastes.Add(1)
	}
	if j.err != nil && j.s.appendTurn.Try() {
		j.s.takeBack(j)
		j.s.appendTurn.Give()
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.endLocked()
}
