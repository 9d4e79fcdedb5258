package hostile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/keys"
)

// scene is a bucket that two devices have written, at two moments, and what is right of it. It
// never changes once it is made.
type scene struct {
	name     string
	key      string // file
	mid, end mem.State
	done     mem.State         // the end without what a device could not complete
	content  map[string][]byte // of the objects at the end
	names    []string          // of the objects at the end, sorted
	ring     *seal.Keyring
	target   wire.Names                          // of the page that is attacked
	known    map[string]map[ledger.CommitID]bool // all commits ever, by page
	heads    map[string][]ledger.CommitID        // at the end, by page
	values   map[string]map[string][32]byte      // at the end, by page and key
	lazy     map[string]bool                     // packs without eager pieces, by name
	read     map[string][]part                   // what a new device or one of the middle asks for of objects
}

const (
	targetLedger, targetName = "notes", "main"
	otherName                = "bystander"
)

// options are those of a device that syncs when it is told and merges nothing by itself.
func options(o *owner) *ledger.Options {
	open := func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return o, nil }
	return &ledger.Options{
		InMemory: true, Logger: slog.New(slog.NewTextHandler(o, nil)), ManualMerge: true,
		Buckets: map[string]bucket.Opener{"mem": open}, Sync: ledger.SyncOptions{Manual: true},
	}
}

func (s *scene) cloud() *ledger.Cloud {
	return &ledger.Cloud{URL: "mem:hostile", KeyFile: s.key}
}

// clone makes a new device of what o shows. With an error of its first sync the device is there
// too.
func (s *scene) clone(ctx context.Context, o *owner) (*ledger.Repository, error) {
	r, err := ledger.Clone(ctx, "", options(o), s.cloud())
	if err == nil {
		_, err = r.Sync(ctx)
	}
	return r, err
}

// stage is a scene that is being made.
type stage struct {
	t    testing.TB
	s    *scene
	o    *owner
	a, b *ledger.Repository
	last func() // what a device does that does not end any more, at the end
}

// makeScene has two devices write: write until the moment mid, and then to the end.
func makeScene(t testing.TB, name, key string, write func(g *stage, mid func())) *scene {
	t.Helper()
	s := &scene{name: name, key: key, known: map[string]map[ledger.CommitID]bool{}, heads: map[string][]ledger.CommitID{}, values: map[string]map[string][32]byte{}}
	g := &stage{t: t, s: s, o: newOwner(mem.State{})}
	g.a, g.b = g.device(), g.device()
	g.put(g.a, targetLedger, otherName, "first", "1")
	write(g, func() {
		g.sync(g.a, g.b, g.a)
		g.record()
		s.mid = g.o.b.State()
	})
	g.put(g.b, targetLedger, otherName, "second", "2")
	g.sync(g.a, g.b, g.a)
	g.record()
	s.done = g.o.b.State()
	if g.last != nil {
		g.last()
	}
	g.must(g.a.Close())
	g.must(g.b.Close())
	s.ring = g.keyring()
	s.target = wire.NamesOf(s.ring, targetLedger, ledger.DerivePageID(targetLedger, targetName))
	s.end = g.o.b.State()
	s.names = g.o.b.Names()
	s.content, s.lazy = map[string][]byte{}, map[string]bool{}
	for _, n := range s.names {
		s.content[n], _ = g.o.b.Content(n)
	}
	for _, n := range s.names {
		s.findLazy(n)
	}
	s.read = map[string][]part{}
	g.note(s.mid, s.end)
	g.note(s.end)
	return s
}

// note notes what a device asks for of the last of the states that it meets one after the other.
func (g *stage) note(first mem.State, others ...mem.State) {
	g.t.Helper()
	o := newOwner(first)
	r, err := g.s.clone(context.Background(), o)
	g.must(err)
	for _, other := range others {
		o.show(other, lies{})
		g.sync(r)
	}
	_, err = valuesOf(context.Background(), g.page(r, targetLedger, targetName))
	g.must(err)
	for name, parts := range o.all() {
		g.s.read[name] = append(g.s.read[name], parts...)
	}
	g.must(r.Close())
}

func (g *stage) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *stage) device() *ledger.Repository {
	g.t.Helper()
	r, err := ledger.Open(context.Background(), "", options(g.o))
	g.must(err)
	_, err = r.SetCloud(context.Background(), g.s.cloud())
	g.must(err)
	return r
}

func (g *stage) sync(rs ...*ledger.Repository) {
	g.t.Helper()
	for _, r := range rs {
		_, err := r.Sync(context.Background())
		g.must(err)
	}
}

func (g *stage) page(r *ledger.Repository, l, name string) *ledger.Page {
	g.t.Helper()
	p, err := r.Page(context.Background(), l, name)
	g.must(err)
	return p
}

func (g *stage) update(r *ledger.Repository, l, name string, fn func(tx *ledger.Tx) error) {
	g.t.Helper()
	p := g.page(r, l, name)
	_, err := p.Update(context.Background(), fn)
	g.must(errors.Join(err, p.Close()))
}

func (g *stage) put(r *ledger.Repository, l, name string, pairs ...string) {
	g.t.Helper()
	g.update(r, l, name, func(tx *ledger.Tx) (err error) {
		for i := 0; i < len(pairs); i += 2 {
			err = errors.Join(err, tx.Put(context.Background(), []byte(pairs[i]), []byte(pairs[i+1])))
		}
		return err
	})
}

func (g *stage) putLazy(r *ledger.Repository, key string, value []byte) {
	g.t.Helper()
	g.update(r, targetLedger, targetName, func(tx *ledger.Tx) error {
		return tx.PutReader(context.Background(), []byte(key), bytes.NewReader(value), -1, ledger.Lazy)
	})
}

// merge brings the heads of the target together.
func (g *stage) merge(r *ledger.Repository) {
	g.t.Helper()
	p := g.page(r, targetLedger, targetName)
	_, err := p.Merge(context.Background())
	g.must(errors.Join(err, p.Close()))
}

// keyring opens the keyring of the bucket.
func (g *stage) keyring() *seal.Keyring {
	g.t.Helper()
	master, err := seal.ReadKeyFile(g.s.key, false, secret.Bytes{})
	g.must(err)
	chain, err := cloudsync.ReadKeys(context.Background(), g.o.b)
	g.must(err)
	ring, err := chain.Open(master)
	g.must(err)
	return ring
}

// record notes what is right now: both devices have it. Commits that were given up later are known.
func (g *stage) record() {
	g.t.Helper()
	ctx := context.Background()
	infos, err := g.a.Pages(ctx)
	g.must(err)
	for _, info := range infos {
		p := g.page(g.a, info.Ledger, info.Name)
		k := info.Ledger + "/" + info.Name
		if g.s.known[k] == nil {
			g.s.known[k] = map[ledger.CommitID]bool{ledger.CommitID(commit.First().ID): true}
		}
		for c, err := range p.Log(ctx) {
			g.must(err)
			g.s.known[k][c.ID] = true
		}
		g.s.heads[k], err = headsOf(ctx, p)
		g.must(err)
		g.s.values[k], err = valuesOf(ctx, p)
		g.must(err)
		g.must(p.Close())
	}
}

func headsOf(ctx context.Context, p *ledger.Page) (ids []ledger.CommitID, err error) {
	hs, err := p.Heads(ctx)
	for _, h := range hs {
		ids = append(ids, h.ID)
	}
	return ids, err
}

// valuesOf reads everything.
func valuesOf(ctx context.Context, p *ledger.Page) (map[string][32]byte, error) {
	all := map[string][32]byte{}
	return all, p.View(ctx, func(s *ledger.Snapshot) error {
		for e, err := range s.Scan(ctx, ledger.ScanOptions{}) {
			if err != nil {
				return err
			}
			v, err := e.Value(ctx)
			if err != nil {
				return err
			}
			all[string(e.Key)] = sha256.Sum256(v)
		}
		return nil
	})
}

// noise returns n bytes that cannot be compressed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// scenes are made once for all tests.
var scenes struct {
	once sync.Once
	all  []*scene
}

func allScenes(t testing.TB) []*scene {
	t.Helper()
	scenes.once.Do(func() {
		key := filepath.Join(keyDir, "key")
		if err := keys.CreateFile(key, nil); err != nil {
			t.Fatal(err)
		}
		scenes.all = []*scene{
			makeScene(t, "entries", key, writeEntries),
			makeScene(t, "packs", key, writePacks),
			makeScene(t, "diffs", key, writeDiffs),
			makeScene(t, "bodies", key, writeBodies),
			makeScene(t, "checkpoints", key, writeCheckpoints),
			makeScene(t, "turn", key, writeTurn),
			makeScene(t, "rings", key, writeRings),
		}
	})
	if len(scenes.all) != 7 {
		t.Fatal("the scenes could not be made")
	}
	return scenes.all
}

// writeEntries makes small commits, values that stand in entries, tags, a merge with an
// explanation.
func writeEntries(g *stage, mid func()) {
	for i := range 35 {
		g.put(g.a, targetLedger, targetName, fmt.Sprintf("key %d", i%7), fmt.Sprintf("value %d", i))
		switch i {
		case 3:
			g.put(g.a, targetLedger, targetName, "medium", string(noise(3, 5<<10)))
		case 5:
			g.putLazy(g.a, "lazy", noise(5, 100<<10))
		case 8:
			g.tag("one", true)
		}
		g.sync(g.a)
		if i == 20 {
			mid()
		}
	}
	g.put(g.a, targetLedger, "sibling", "key", "of another page")
	g.put(g.a, "journal", targetName, "key", "of another ledger")
	g.sync(g.a, g.b)
	g.put(g.a, targetLedger, targetName, "both", "A")
	g.put(g.b, targetLedger, targetName, "both", "B")
	g.tag("two", true)
	g.tag("one", false)
	g.sync(g.a, g.b)
	g.merge(g.b)
	g.sync(g.b, g.a)
}

func (g *stage) tag(name string, set bool) {
	g.t.Helper()
	ctx := context.Background()
	p := g.page(g.a, targetLedger, targetName)
	hs, err := p.Heads(ctx)
	g.must(err)
	if set {
		err = p.Tag(ctx, name, hs[0].ID)
	} else {
		err = p.DeleteTag(ctx, name)
	}
	g.must(errors.Join(err, p.Close()))
}

// writePacks makes packs of eager and of lazy pieces.
func writePacks(g *stage, mid func()) {
	g.putLazy(g.a, "lazy", noise(11, 1050<<10))
	mid()
	g.put(g.a, targetLedger, targetName, "eager", string(noise(12, 1050<<10)))
	g.putLazy(g.a, "lazier", noise(13, 1050<<10))
	g.sync(g.a)
}

// writeDiffs makes a diff that is an object of its own.
func writeDiffs(g *stage, mid func()) {
	g.put(g.a, targetLedger, targetName, "key", "value")
	mid()
	g.update(g.a, targetLedger, targetName, func(tx *ledger.Tx) (err error) {
		value := noise(20, 250)
		for i := range 17_000 {
			value[i%250]++
			err = errors.Join(err, tx.Put(context.Background(), fmt.Appendf(nil, "row %d", i), value))
		}
		return err
	})
	g.sync(g.a)
	g.put(g.a, targetLedger, targetName, "key", "after")
}

// writeBodies makes an entry whose body is an object of its own.
func writeBodies(g *stage, mid func()) {
	g.put(g.a, targetLedger, targetName, "key", "value")
	mid()
	value := noise(21, 240)
	for i := range 580 { // of 15 KiB each, which stands with its commit
		g.update(g.a, targetLedger, targetName, func(tx *ledger.Tx) (err error) {
			for row := range 60 {
				value[row]++
				err = errors.Join(err, tx.Put(context.Background(), fmt.Appendf(nil, "row %d", (i+row)%90), value))
			}
			return err
		})
	}
	g.sync(g.a)
	g.put(g.a, targetLedger, targetName, "key", "after")
}

// writeCheckpoints cuts the log before the middle and after it, and gives history up with both. So
// checkpoints stand on runs and packs of several epochs, and an old device is an epoch behind, at a
// commit that the page does not have any more. Another page has objects of the same kinds.
func writeCheckpoints(g *stage, mid func()) {
	for i := range 12 {
		g.put(g.a, targetLedger, targetName, "replaced", string(noise(30+uint64(i), 60<<10)), fmt.Sprint("kept ", i), "x")
		g.put(g.a, targetLedger, "sibling", "replaced", string(noise(60+uint64(i), 10<<10)))
		switch i {
		case 0:
			g.putLazy(g.a, "lazy", noise(29, 1050<<10))
			g.put(g.a, targetLedger, "sibling", "long", string(noise(28, 1050<<10)))
			g.tag("one", true)
		case 4:
			g.must(g.retain())
		case 5:
			mid()
		case 9:
			g.sync(g.a)
			g.record()
			_, err := admin.CollectCloud(context.Background(), g.a, nil)
			g.must(err)
		}
		g.sync(g.a)
	}
}

// retain gives history up, which begins an epoch.
func (g *stage) retain() error {
	_, err := admin.Collect(context.Background(), g.a, &admin.CollectOptions{Retention: &admin.Retention{Commits: 3}})
	return err
}

// writeTurn has a device die in the midst of a cut: the log has a closing entry, and the bucket not
// the epoch that it proposes. Whoever reads it completes the cut.
func writeTurn(g *stage, mid func()) {
	for i := range 6 {
		g.put(g.a, targetLedger, targetName, fmt.Sprint("key ", i), string(noise(50+uint64(i), 20<<10)))
		g.sync(g.a)
		if i == 3 {
			mid()
		}
	}
	g.last = func() {
		died := errors.New("the device has died")
		g.o.show(g.o.b.State(), lies{put: func(ctx context.Context, b bucket.Bucket, name string, size int64, content io.Reader) error {
			if strings.Contains(name, "/epochs/") {
				return died
			}
			return b.PutIfAbsent(ctx, name, size, content)
		}})
		if err := g.retain(); !errors.Is(err, died) {
			g.t.Fatalf("a cut that cannot end: %v", err)
		}
	}
}

// writeRings changes the keyring after the middle: all that follows is sealed with a new data key.
func writeRings(g *stage, mid func()) {
	g.put(g.a, targetLedger, targetName, "key", "value")
	mid()
	for i := range 3 {
		_, err := keys.Change(context.Background(), g.a, &keys.ChangeOptions{NewDataKey: true})
		g.must(err)
		g.put(g.a, targetLedger, targetName, "key", fmt.Sprint("value ", i))
		g.sync(g.a)
	}
}

// The kinds of objects of a bucket.
const (
	kindKeys         = "keys" // the first ring
	kindRing         = "ring" // another one
	kindAnnouncement = "announcement"
	kindEpoch        = "epoch"
	kindEntry        = "entry"
	kindClosing      = "closing entry"
	kindBody         = "long body"
	kindPack         = "pack"
	kindDiff         = "difference"
	kindCheckpoint   = "checkpoint"
	kindRun          = "run"
)

// kindOf says which kind of object a name stands for.
func (s *scene) kindOf(name string) string {
	switch {
	case name == wire.FirstRing:
		return kindKeys
	case strings.HasPrefix(name, wire.KeysPrefix):
		return kindRing
	case strings.HasPrefix(name, wire.PagesPrefix):
		return kindAnnouncement
	}
	names := wire.Names{Dir: strings.Join(strings.Split(name, "/")[:2], "/")}
	n, ok := names.Parse(name)
	if !ok {
		return "unknown"
	}
	switch n.Kind {
	case wire.KindEpoch:
		return kindEpoch
	case wire.KindEntry:
		e, err := wire.OpenEntry(seal.NewSealer(s.ring, nil), names, n.Epoch, n.Number, s.content[name])
		if err == nil && e.Closing != nil {
			return kindClosing
		}
		return kindEntry
	case wire.KindPack:
		if s.opens(name, names.DiffLabel(n.Epoch, n.ID)) {
			return kindDiff
		}
		if s.opens(name, names.LongBodyLabel(n.Epoch, n.ID)) {
			return kindBody
		}
		return kindPack
	}
	if s.opens(name, names.CheckpointLabel(n.Epoch, n.ID)) {
		return kindCheckpoint
	}
	return kindRun
}

// opens reports whether an object is the one that a label says.
func (s *scene) opens(name string, l seal.Label) bool {
	r, err := seal.NewSealer(s.ring, nil).NewStream(bytes.NewReader(s.content[name]), int64(len(s.content[name])), l, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	return err == nil
}

// findLazy notes the packs without eager pieces that an entry announces.
func (s *scene) findLazy(name string) {
	n, ok := s.target.Parse(name)
	if !ok || n.Kind != wire.KindEntry {
		return
	}
	sealer := seal.NewSealer(s.ring, nil)
	e, err := wire.OpenEntry(sealer, s.target, n.Epoch, n.Number, s.content[name])
	if err != nil || e.Closing != nil {
		return
	}
	var body io.Reader = bytes.NewReader(e.Body)
	if e.Long != [16]byte{} {
		long := s.content[s.target.Pack(n.Epoch, e.Long)]
		body, err = sealer.NewStream(bytes.NewReader(long), int64(len(long)), s.target.LongBodyLabel(n.Epoch, e.Long), (*seal.Sum)(&e.LongHash))
	}
	for r := wire.NewReader(body, wire.Body); err == nil; {
		var record wire.Record
		if record, err = r.Next(); err == nil {
			if p, ok := record.(*wire.Pack); ok {
				s.lazy[s.target.Pack(p.Epoch, p.ID)] = !p.Eager
			}
		}
	}
}

// byKind returns the target's objects, and those of the whole bucket, by kind.
func (s *scene) byKind() map[string][]string {
	all := map[string][]string{}
	own := wire.AnnouncementName(s.ring, targetLedger, ledger.DerivePageID(targetLedger, targetName))
	for _, n := range s.names {
		if strings.HasPrefix(n, wire.KeysPrefix) || n == own || strings.HasPrefix(n, s.target.Dir+"/") {
			k := s.kindOf(n)
			all[k] = append(all[k], n)
		}
	}
	return all
}

// with returns the state at the end with one object replaced, or removed for nil.
func (s *scene) with(name string, content []byte) mem.State { return replaced(s.end, name, content) }

func replaced(state mem.State, name string, content []byte) mem.State {
	b := mem.New(mem.Options{})
	b.Rollback(state)
	if content == nil {
		_ = b.Delete(context.Background(), name) // no fault is set
		return b.State()
	}
	b.Replace(name, content)
	return b.State()
}

// TestScenes wants each kind of object in some scene, and honest buckets to be right.
func TestScenes(t *testing.T) {
	kinds := map[string]int{}
	for _, s := range allScenes(t) {
		for k, names := range s.byKind() {
			kinds[k] += len(names)
		}
		a := attack{s: s, state: s.end}
		if err := a.newDevice(t); err != nil {
			t.Errorf("%s: a new device: %v", s.name, err)
		}
		if err := a.oldDevice(t); err != nil {
			t.Errorf("%s: an old device: %v", s.name, err)
		}
	}
	t.Log(kinds)
	for _, k := range []string{kindKeys, kindRing, kindAnnouncement, kindEpoch, kindEntry, kindClosing, kindBody, kindPack, kindDiff, kindCheckpoint, kindRun} {
		if kinds[k] == 0 {
			t.Errorf("no object of kind %s", k)
		}
	}
	if slices.Contains(slices.Collect(maps.Keys(kinds)), "unknown") {
		t.Error("objects that nothing is known of")
	}
}

// patience bounds every call of a test.
const patience = 5 * time.Minute
