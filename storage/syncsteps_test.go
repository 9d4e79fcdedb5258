package storage_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// value makes a value of one piece, new or one that was made before.
func (m *syncModel) value(w *world, rng *rand.Rand) ([]byte, object.Digest) {
	if len(m.digests) > 0 && rng.IntN(2) == 0 {
		d := m.digests[rng.IntN(len(m.digests))]
		return m.contents[d], d
	}
	v := noise(rng, 600+rng.IntN(300))
	d := object.Sum(0, v)
	w.cloud.put(d, v)
	m.contents[d] = v
	m.know([]object.Digest{d}, nil)
	return v, d
}

func (m *syncModel) newPlace(rng *rand.Rand, n int) storage.CloudPlace {
	m.places++
	if rng.IntN(2) == 0 {
		return storage.CloudPlace{Entry: m.places, Block: rng.Uint32N(10), At: rng.Uint32(), Bytes: uint32(n)}
	}
	p := storage.CloudPlace{Block: rng.Uint32(), Offset: rng.Int64(), StoredBytes: rng.Uint32(), Bytes: uint32(n), KeyIndex: rng.Uint32N(3)}
	p.Pack[0], p.Pack[15] = byte(m.places%4)+1, byte(m.places>>2)
	return p
}

// some returns some of the pieces, each once.
func (m *syncModel) some(rng *rand.Rand, most int) []object.Digest {
	var out []object.Digest
	for _, i := range rng.Perm(len(m.digests)) {
		if len(out) < most {
			out = append(out, m.digests[i])
		}
	}
	return out
}

// heldOnly returns those that are held for certain.
func (m *syncModel) heldOnly(ds []object.Digest) []object.Digest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(ds, func(d object.Digest) bool {
		return slices.ContainsFunc(m.pieces[d], func(p modelPiece) bool { return !p.held })
	})
}

func in[T comparable](list []T) func(T) bool {
	set := map[T]bool{}
	for _, t := range list {
		set[t] = true
	}
	return func(t T) bool { return set[t] }
}

// localCommit commits values, some of which the page has already, in a journal of its own or one
// that is open.
func (w *world) localCommit(rng *rand.Rand) error {
	m := w.model
	e := edit{}
	for range 1 + rng.IntN(4) {
		v, _ := m.value(w, rng)
		e[fmt.Sprint("sync ", rng.IntN(30))] = v
	}
	j := w.s.NewJournal()
	if i := rng.IntN(len(m.open)); m.open[i] != nil && rng.IntN(2) == 0 {
		j.Rollback()
		j = m.open[i].j
		for _, d := range m.open[i].pieces {
			e[fmt.Sprint("sync ", rng.IntN(30))] = m.contents[d]
		}
		m.open[i] = nil
	}
	used := map[object.Digest]bool{}
	for _, v := range e {
		used[object.Sum(0, v)] = true
	}
	ch := change{piece: func(d object.Digest, p modelPiece) modelPiece {
		if used[d] {
			p = p.put()
		}
		return p
	}}
	return m.step(ch, func() error {
		t, err := w.submitJournal(j, e, rng.IntN(3), w.s.NewestHead())
		if err != nil {
			j.Rollback()
			return err
		}
		return w.wait(t)
	})
}

// journalStep puts pieces into a journal that stays open, or gives one up.
func (w *world) journalStep(rng *rand.Rand) error {
	m := w.model
	i := rng.IntN(len(m.open))
	if m.open[i] != nil && rng.IntN(4) == 0 {
		m.open[i].j.Rollback()
		m.open[i] = nil
		return nil
	}
	if m.open[i] == nil {
		m.open[i] = &openJournal{j: w.s.NewJournal()}
	}
	o := m.open[i]
	var vs [][]byte
	var ds []object.Digest
	for range 1 + rng.IntN(3) {
		v, d := m.value(w, rng)
		vs, ds = append(vs, v), append(ds, d)
	}
	o.pieces = append(o.pieces, ds...)
	is := in(ds)
	return m.step(change{piece: func(d object.Digest, p modelPiece) modelPiece {
		if is(d) {
			p = p.put()
		}
		return p
	}}, func() error {
		for k, v := range vs {
			if err := o.j.PutPiece(context.Background(), ds[k], v); err != nil {
				return err
			}
		}
		return o.j.Flush(context.Background())
	})
}

// endJournals gives up what is open: the page closes.
func (w *world) endJournals() {
	m := w.model
	for i, o := range m.open {
		if o != nil {
			o.j.Rollback()
			m.open[i] = nil
		}
	}
}

// receiveStep takes commits from the bucket, with values that are here and values that are not,
// sometimes behind one without its tree.
func (w *world) receiveStep(rng *rand.Rand) error {
	m := w.model
	j := w.s.NewJournal()
	defer j.Rollback()
	b := storage.SyncBatch{}
	parent := w.s.NewestHead()
	var ids []commit.ID
	if rng.IntN(2) == 0 {
		e := edit{fmt.Sprint("bare ", rng.IntN(100)): noise(rng, 30)}
		bare := w.s.NewJournal()
		t, err := w.make(bare, e, 0, parent)
		bare.Rollback()
		if err != nil {
			return err
		}
		m.treeless = append(m.treeless, treeless{t.c, parent, e})
		b.Commits = append(b.Commits, storage.ReceivedCommit{Commit: t.c, Treeless: true})
		w.note(t.c)
		ids = append(ids, t.c.ID)
	}
	e, lazy := edit{}, edit{}
	places := map[object.Digest]storage.CloudPlace{}
	held := map[object.Digest]bool{}
	for range 1 + rng.IntN(5) {
		v, d := m.value(w, rng)
		places[d] = m.newPlace(rng, len(v))
		to := e
		if rng.IntN(2) == 0 {
			to = lazy
		}
		to[fmt.Sprint("from ", rng.IntN(40))] = v
	}
	c, err := w.makeReceived(j, e, lazy, parent, b.Commits)
	if err != nil {
		return err
	}
	for _, v := range e {
		held[object.Sum(0, v)] = true
	}
	for d, p := range places {
		b.Places = append(b.Places, storage.PlacedPiece{Digest: d, Place: p})
	}
	slices.SortFunc(b.Places, func(a, b storage.PlacedPiece) int { return a.Digest.Compare(b.Digest) })
	b.Commits = append(b.Commits, storage.ReceivedCommit{Commit: c})
	ids = append(ids, c.ID)
	m.know(nil, ids)
	w.note(c)
	m.received = append(m.received, c)
	b.Metadata = []storage.Metadata{{Type: "position", Value: c.ID[:]}}
	m.knowMetadata("position")
	ch := change{
		piece: func(d object.Digest, p modelPiece) modelPiece {
			if held[d] {
				p = p.put()
			}
			if at, ok := places[d]; ok {
				p.placed, p.place = true, at
			}
			return p
		},
		commit: func(id commit.ID, mc modelCommit) modelCommit {
			if i := slices.Index(ids, id); i >= 0 {
				mc = modelCommit{synced: true, treeless: b.Commits[i].Treeless}
			}
			return mc
		},
		metadata: func(typ, v string) string {
			if typ == "position" {
				v = string(c.ID[:])
			}
			return v
		},
	}
	return m.step(ch, func() error {
		if err := w.submitSync(j, &b); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.acked = append(w.acked, c)
		return nil
	})
}

func (w *world) note(c *commit.Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.maybe = append(w.maybe, c)
}

func (w *world) submitSync(j *storage.Journal, b *storage.SyncBatch) error {
	p, err := w.s.SubmitSync(context.Background(), j, b)
	if err != nil {
		return err
	}
	return p.Wait()
}

// makeReceived makes a commit on parent, or on the last of before, with values whose pieces the
// journal gets and others.
func (w *world) makeReceived(
	j *storage.Journal, e, lazy edit, parent *commit.Commit, before []storage.ReceivedCommit,
) (*commit.Commit, error) {
	ctx := context.Background()
	root, err := btree.Tree{Page: testPage, Source: j, Root: parent.Root}.Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		all := maps.Clone(lazy)
		maps.Copy(all, e)
		for _, k := range sortedKeys(all) {
			ch := btree.Change{Entry: fb.Entry{Key: []byte(k), Digest: object.Sum(0, all[k]), Size: uint64(len(all[k])), Priority: object.Lazy}}
			var err error
			if e[k] != nil {
				ch, err = putValue(ctx, j, k, e[k], 0)
			}
			if !yield(ch, err) || err != nil {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	model := maps.Clone(w.models[parent.ID])
	w.mu.Unlock()
	maps.Copy(model, lazy)
	maps.Copy(model, e)
	if len(before) > 0 {
		parent = before[len(before)-1].Commit
	}
	c, err := commit.New(commit.Params{Now: time.Unix(1, w.clock.Add(1)), Root: root, Parents: []*commit.Commit{parent}})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.models[c.ID] = model
	return c, nil
}

func (m *syncModel) knowMetadata(typ string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.metadata[typ] == nil {
		m.metadata = maps.Clone(m.metadata)
		m.metadata[typ] = []string{""}
	}
}

// placeStep says where the bucket has some pieces, or that it has them no more.
func (w *world) placeStep(rng *rand.Rand) error {
	m := w.model
	placed, unplaced := m.some(rng, rng.IntN(12)), m.some(rng, rng.IntN(6))
	if !m.lossy {
		unplaced = m.heldOnly(unplaced)
	}
	b := storage.SyncBatch{Unplaced: unplaced}
	places := map[object.Digest]storage.CloudPlace{}
	for _, d := range placed {
		places[d] = m.newPlace(rng, len(m.contents[d]))
		b.Places = append(b.Places, storage.PlacedPiece{Digest: d, Place: places[d]})
	}
	is := in(unplaced)
	return m.step(change{piece: func(d object.Digest, p modelPiece) modelPiece {
		if is(d) {
			p = p.unplace()
		}
		if at, ok := places[d]; ok {
			p.placed, p.place = true, at
		}
		return p
	}}, func() error { return w.submitSync(nil, &b) })
}

// dropStep gives up the content of pieces.
func (w *world) dropStep(rng *rand.Rand) error {
	m := w.model
	ds := m.some(rng, rng.IntN(20))
	is := in(ds)
	return m.step(change{piece: func(d object.Digest, p modelPiece) modelPiece {
		if is(d) && p.placed {
			p.held = false
		}
		return p
	}}, func() error {
		_, err := w.s.DropPieces(context.Background(), ds)
		return err
	})
}

// fetchStep stores pieces that were not held.
func (w *world) fetchStep(rng *rand.Rand) error {
	m := w.model
	ds := m.some(rng, rng.IntN(8))
	var ps []storage.FetchedPiece
	for _, d := range ds {
		ps = append(ps, storage.FetchedPiece{Digest: d, Content: m.contents[d]})
	}
	is := in(ds)
	return m.step(change{piece: func(d object.Digest, p modelPiece) modelPiece {
		if is(d) && p.placed {
			p.held = true
		}
		return p
	}}, func() error { return w.s.AddFetched(context.Background(), ps) })
}

// fetchAll stores everything that is not held.
func (w *world) fetchAll() error {
	m := w.model
	var ps []storage.FetchedPiece
	for _, d := range m.digests {
		ps = append(ps, storage.FetchedPiece{Digest: d, Content: m.contents[d]})
	}
	return m.step(change{piece: func(_ object.Digest, p modelPiece) modelPiece {
		p.held = p.held || p.placed
		return p
	}}, func() error { return w.s.AddFetched(context.Background(), ps) })
}

// forgetStep forgets the bucket.
func (w *world) forgetStep() error {
	m := w.model
	keep := !m.lossy
	if keep {
		m.mu.Lock()
		for _, states := range m.pieces {
			if slices.ContainsFunc(states, func(p modelPiece) bool { return p.placed && !p.held }) {
				keep = false
			}
		}
		m.mu.Unlock()
		if !keep { // something may be lost
			return nil
		}
	}
	return m.step(change{
		piece:  func(_ object.Digest, p modelPiece) modelPiece { return p.unplace() },
		commit: func(_ commit.ID, c modelCommit) modelCommit { return modelCommit{treeless: c.treeless} },
		tag: func(_ string, t modelTag) modelTag {
			if t.id != (commit.ID{}) {
				t.isNew, t.changed = true, t.id
			}
			return t
		},
		metadata: func(string, string) string { return "" },
	}, func() error { return w.s.ForgetCloud(context.Background(), keep) })
}

// statusStep changes statuses of commits, and rebuilds a tree.
func (w *world) statusStep(rng *rand.Rand) error {
	m := w.model
	acked := w.promise().acked
	if len(acked) == 0 {
		return nil
	}
	var b storage.SyncBatch
	for range rng.IntN(6) {
		id := acked[rng.IntN(len(acked))].ID
		if rng.IntN(3) > 0 {
			b.Synced = append(b.Synced, id)
		} else {
			b.Unsynced = append(b.Unsynced, id)
		}
	}
	j := w.s.NewJournal()
	defer j.Rollback()
	var rebuilt commit.ID
	if n := len(m.treeless); n > 0 && rng.IntN(2) == 0 {
		t := m.treeless[rng.IntN(n)]
		if _, err := w.s.Commit(context.Background(), t.c.ID); err == nil {
			if err := w.rebuild(j, t); err != nil {
				return err
			}
			b.Commits = append(b.Commits, storage.ReceivedCommit{Commit: t.c})
			rebuilt = t.c.ID
		}
	}
	m.know(nil, append(slices.Clone(b.Synced), b.Unsynced...))
	synced, unsynced := in(b.Synced), in(b.Unsynced)
	return m.step(change{commit: func(id commit.ID, c modelCommit) modelCommit {
		if id == rebuilt {
			c = modelCommit{synced: true}
		}
		if synced(id) {
			c.synced = true
		}
		if unsynced(id) {
			c.synced = false
		}
		return c
	}}, func() error { return w.submitSync(j, &b) })
}

// rebuild puts the tree of a treeless commit into a journal.
func (w *world) rebuild(j *storage.Journal, t treeless) error {
	ctx := context.Background()
	root, err := btree.Tree{Page: testPage, Source: j, Root: t.parent.Root}.Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		for _, k := range sortedKeys(t.e) {
			if ch, err := putValue(ctx, j, k, t.e[k], 0); !yield(ch, err) || err != nil {
				return
			}
		}
	})
	if err == nil && root != t.c.Root {
		err = errors.New("another tree than the commit names")
	}
	return err
}

// nameStep changes tags and metadata.
func (w *world) nameStep(rng *rand.Rand) error {
	m := w.model
	acked := w.promise().acked
	if len(acked) == 0 {
		return nil
	}
	pick := func() commit.ID { return acked[rng.IntN(len(acked))].ID }
	name, id := fmt.Sprint("free/", rng.IntN(4)), pick()
	m.mu.Lock()
	if m.tags[name] == nil {
		m.tags = maps.Clone(m.tags)
		m.tags[name] = []modelTag{{}}
	}
	known := m.tags[name]
	m.mu.Unlock()
	only := func(f func(t modelTag) modelTag) change {
		return change{tag: func(n string, t modelTag) modelTag {
			if n == name {
				t = f(t)
			}
			return t
		}}
	}
	ctx := context.Background()
	switch rng.IntN(5) {
	case 0:
		return m.step(only(func(modelTag) modelTag { return modelTag{id, id, true} }), func() error { return w.s.SetTag(ctx, name, id) })
	case 1:
		if slices.ContainsFunc(known, func(t modelTag) bool { return t.id == commit.ID{} }) {
			return nil
		}
		return m.step(only(func(modelTag) modelTag { return modelTag{isNew: true} }), func() error { return w.s.DeleteTag(ctx, name) })
	case 2:
		tag := storage.TagChange{Name: name, Commit: id}
		if rng.IntN(3) == 0 {
			tag = storage.TagChange{Name: name, Removed: true}
		}
		return m.step(only(func(t modelTag) modelTag {
			if !t.isNew {
				t.id = tag.Commit
			}
			return t
		}), func() error { return w.submitSync(nil, &storage.SyncBatch{Tags: []storage.TagChange{tag}}) })
	case 3:
		t := known[rng.IntN(len(known))]
		tag := storage.TagChange{Name: name, Commit: t.changed, Removed: t.changed == commit.ID{}}
		if rng.IntN(3) == 0 {
			tag.Commit, tag.Removed = id, false
		}
		return m.step(only(func(t modelTag) modelTag {
			if t.isNew && t.changed == tag.Commit {
				t.isNew, t.changed = false, commit.ID{}
			}
			return t
		}), func() error { return w.submitSync(nil, &storage.SyncBatch{SyncedTags: []storage.TagChange{tag}}) })
	}
	typ, value := fmt.Sprint("type ", rng.IntN(3)), strings.Repeat("v", rng.IntN(40))
	m.knowMetadata(typ)
	md := storage.Metadata{Type: typ, Value: []byte(value)}
	if value == "" {
		md.Value = nil
	}
	return m.step(change{metadata: func(t, v string) string {
		if t == typ {
			v = value
		}
		return v
	}}, func() error { return w.submitSync(nil, &storage.SyncBatch{Metadata: []storage.Metadata{md}}) })
}

// syncStep does something random of sync.
func (w *world) syncStep(rng *rand.Rand) error {
	switch rng.IntN(20) {
	case 0, 1, 2:
		return w.localCommit(rng)
	case 3, 4:
		return w.journalStep(rng)
	case 5, 6, 7:
		return w.receiveStep(rng)
	case 8, 9, 10:
		return w.placeStep(rng)
	case 11, 12:
		return w.dropStep(rng)
	case 13, 14:
		return w.fetchStep(rng)
	case 15:
		return w.forgetStep()
	case 16, 17:
		return w.statusStep(rng)
	}
	return w.nameStep(rng)
}
