package hostile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// substitute is an object that stands in another one's place.
type substitute struct {
	in   target
	from string // says which it is
	with []byte
	// past says that it is an earlier epoch of the page, which has no number of its own. Its log
	// ends with an entry that proposes the next one, so whoever is misled puts that again.
	past bool
}

// strike shows the object to a new device and to one that knows the middle of the scene.
func (u substitute) strike(t *testing.T, turn int, noticed map[string]int) {
	t.Helper()
	if bytes.Equal(u.with, u.in.s.content[u.in.name]) {
		return
	}
	a := &attack{s: u.in.s, state: u.in.s.with(u.in.name, u.with), object: u.in.name}
	found, said := a.strike(t, turn)
	if t.Failed() {
		t.Fatalf("%s in place of %s: %s", u.from, u.in, said)
	}
	if found {
		noticed[u.in.kind]++
	} else if !u.in.elsewhere() && !u.in.lazy() && !u.past {
		t.Errorf("%s in place of %s: nobody has noticed", u.from, u.in)
	}
}

// TestSwapped puts objects of each kind into the place of each kind, and of others of their own
// kind.
func TestSwapped(t *testing.T) {
	rng := seeded(t)
	all := targets(t, 2)
	var pairs []substitute
	last := map[string]int{} // of a pair of kinds; the entries that a new device reads are the last ones
	for _, in := range all {
		for _, from := range all {
			if in.s != from.s && in.kind == from.kind || in.name == from.name {
				continue // those of other buckets are replayed below
			}
			if in.costly() && !everything() && from.kind != kindPack && from.kind != kindEntry {
				continue // each costs as much as thousands of keys
			}
			u := substitute{in: in, from: from.String(), with: from.s.content[from.name]}
			u.past = in.s == from.s && in.kind == kindEpoch && from.kind == kindEpoch
			pair := in.kind + " " + from.kind
			if i, ok := last[pair]; ok && !everything() {
				if rng.IntN(3) == 0 {
					pairs[i] = u
				}
				continue
			}
			last[pair] = len(pairs)
			pairs = append(pairs, u)
		}
	}
	noticed := map[string]int{}
	for i, u := range pairs {
		u.strike(t, i/2, noticed)
	}
	t.Logf("%d pairs, noticed %v", len(pairs), noticed)
	for _, k := range []string{kindKeys, kindAnnouncement, kindEpoch, kindEntry, kindPack, kindDiff, kindCheckpoint, kindRun} {
		if noticed[k] == 0 {
			t.Errorf("nothing in place of an object of kind %s was ever noticed", k)
		}
	}
}

// TestReplayed puts objects of the same kind into the place of objects: of another page, another
// ledger, another device, another bucket with the same master key, and older ones.
func TestReplayed(t *testing.T) {
	noticed := map[string]int{}
	n := 0
	others := map[string]*scene{}
	for name, write := range map[string]func(*stage, func()){
		"entries": writeEntries, "packs": writePacks, "diffs": writeDiffs, "bodies": writeBodies, "checkpoints": writeCheckpoints, "turn": writeTurn, "rings": writeRings,
	} {
		others[name] = makeScene(t, "another bucket", allScenes(t)[0].key, write)
	}
	from := map[string]int{}
	for _, in := range targets(t, 1) {
		for _, u := range replays(in, others[in.s.name]) {
			u.strike(t, n, noticed)
			what, _, _ := strings.Cut(u.from, ": ")
			from[in.kind+": "+what]++
			n++
		}
	}
	t.Logf("%d replays, noticed %v", n, noticed)
	for _, what := range []string{
		"ring: a neighbour", "ring: an object of another bucket", "announcement: the announcement of another page", "announcement: an object of another bucket",
		"epoch: an object of another page", "epoch: an object of another bucket", "entry: an object of another epoch", "entry: an object of another bucket",
		"closing entry: an object of another bucket", "long body: an object of another bucket", "difference: an object of another bucket",
		"pack: an object of another page", "pack: an object of another epoch", "pack: an object of another bucket",
		"checkpoint: an object of another page", "checkpoint: an object of another epoch", "checkpoint: an object of another bucket",
		"run: an object of another page", "run: an object of another epoch", "run: an object of another bucket",
	} {
		if from[what] == 0 {
			t.Errorf("not replayed: %s; %v", what, from)
		}
	}
}

// replays returns what can be replayed in the place of an object.
func replays(in target, other *scene) (us []substitute) {
	add := func(from string, with []byte) { us = append(us, substitute{in: in, from: from, with: with}) }
	seen := map[string]bool{} // a few of each are enough
	once := func(from, name string) {
		if !seen[from] {
			seen[from] = true
			add(from, in.s.content[name])
		}
	}
	at, ok := in.s.target.Parse(in.name)
	ring, isRing := wire.ParseRingName(in.s.ring.BucketID(), in.name)
	for _, n := range in.s.names {
		dir, own := in.s.target.Dir, strings.HasPrefix(n, in.s.target.Dir+"/")
		if parts := strings.SplitN(n, "/", 3); !own && len(parts) == 3 {
			dir = parts[0] + "/" + parts[1]
		}
		is, page := wire.Names{Dir: dir}.Parse(n)
		number, ofKeys := wire.ParseRingName(in.s.ring.BucketID(), n)
		switch {
		case isRing && ofKeys && (number+1 == ring || number == ring+1):
			add("a neighbour", in.s.content[n])
		case in.kind == kindAnnouncement && in.s.kindOf(n) == kindAnnouncement && n != in.name:
			add("the announcement of another page", in.s.content[n])
		case !ok || !page || is.Kind != at.Kind || n == in.name:
		case !own && is.Number == at.Number && at.Number > 0:
			once("the same number of another page: "+dir, n)
		case !own:
			once("an object of another page: "+dir, n)
		case is.Number+1 == at.Number || is.Number == at.Number+1:
			add("a neighbour", in.s.content[n])
			us[len(us)-1].past = is.Kind == wire.KindEpoch
		case is.Epoch != at.Epoch && in.s.kindOf(n) == in.kind:
			once("an object of another epoch", n)
		case is.ID != at.ID && in.s.kindOf(n) == in.kind:
			once("another one of the epoch", n)
		}
	}
	for _, n := range other.byKind()[in.kind] {
		is, _ := other.target.Parse(n)
		if number, _ := wire.ParseRingName(other.ring.BucketID(), n); is.Number == at.Number && number == ring {
			add("an object of another bucket", other.content[n])
			break
		}
	}
	return us
}

// TestKeyringOfAnother shows the keyring of another bucket that was wrapped with the same master
// key: to a device that has another one, and to a new one, which can only say that nothing here was
// sealed with it.
func TestKeyringOfAnother(t *testing.T) {
	s := allScenes(t)[0]
	other := makeScene(t, "another bucket", s.key, func(_ *stage, mid func()) { mid() })
	o := newOwner(s.end)
	r, err := s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	o.show(s.with(wire.FirstRing, other.content[wire.FirstRing]), lies{})
	if _, err := r.Sync(t.Context()); !errors.Is(err, ledger.ErrCloudReplaced) {
		t.Errorf("sync: %v", err)
	}
	fresh, err := s.clone(t.Context(), o)
	if !errors.Is(err, ledger.ErrCorrupt) || fresh == nil {
		t.Fatalf("clone: %v", err)
	}
	if pages, err := fresh.Pages(t.Context()); err != nil || len(pages) > 0 {
		t.Errorf("a new device has the pages %v, %v", pages, err)
	}
	closeIt(t, fresh)
	o.show(s.end, lies{})
	if _, err := r.Sync(t.Context()); err != nil {
		t.Errorf("sync with a healed bucket: %v", err)
	}
}

// TestRolledBack shows a device that knows the end the middle, whole or of one page, and afterwards
// the end again. A device whose epoch is gone asks the user. One whose epoch has lost entries mends
// the bucket with another epoch, and tells so.
func TestRolledBack(t *testing.T) {
	ctx := t.Context()
	for _, s := range allScenes(t) {
		t.Run(s.name, func(t *testing.T) {
			o := newOwner(s.end)
			r, err := s.clone(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			a := attack{s: s}
			for what, state := range map[string]mem.State{"all": s.mid, "one page": s.pageAt(s.mid)} {
				closeIt(t, r)
				o.show(s.end, lies{})
				if r, err = s.clone(ctx, o); err != nil {
					t.Fatal(err)
				}
				knew := o.b.State()
				o.show(state, lies{})
				put(t, r, "while it was rolled back", what)
				_, err := r.Sync(ctx)
				mended := o.mended() != ""
				if !mended && !errors.Is(err, ledger.ErrCloudRolledBack) && !errors.Is(err, ledger.ErrCloudReplaced) && !errors.Is(err, ledger.ErrCorrupt) {
					t.Errorf("%s: sync with an older state: %v", what, err)
				}
				a.s = &scene{known: withAll(t, s, r), heads: s.heads, values: s.values}
				a.content(t, what, r, false)
				o.show(knew, lies{})
				if err := comeBack(ctx, r, mended); err != nil {
					t.Errorf("%s: sync with the state again that it knew: %v", what, err)
				}
				fresh, err := s.clone(ctx, o)
				if err != nil {
					t.Fatal(err)
				}
				if got := read(t, fresh, "while it was rolled back"); got != what {
					t.Errorf("%s: what was written meanwhile came as %q", what, got)
				}
				closeIt(t, fresh)
			}
			closeIt(t, r)
		})
	}
}

// comeBack syncs a device with a bucket that has forgotten the epoch which has mended it, where
// it was: that needs the user.
func comeBack(ctx context.Context, r *ledger.Repository, mended bool) error {
	_, err := r.Sync(ctx)
	if !mended {
		return err
	}
	if !errors.Is(err, ledger.ErrCloudRolledBack) {
		return fmt.Errorf("the epoch of the device is gone: %w", err)
	}
	_, err = admin.Reupload(ctx, r)
	return err
}

// pageAt returns the state at the end with the target's objects as they were.
func (s *scene) pageAt(then mem.State) mem.State {
	b := mem.New(mem.Options{})
	b.Rollback(then)
	for _, n := range s.names {
		if _, ok := b.Content(n); !ok && !strings.HasPrefix(n, s.target.Dir+"/") {
			b.Replace(n, s.content[n])
		}
	}
	return b.State()
}

// withAll returns the known commits, and those of a device.
func withAll(t testing.TB, s *scene, r *ledger.Repository) map[string]map[ledger.CommitID]bool {
	t.Helper()
	all := map[string]map[ledger.CommitID]bool{}
	infos, err := r.Pages(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		k := info.Ledger + "/" + info.Name
		all[k] = map[ledger.CommitID]bool{}
		for id := range s.known[k] {
			all[k][id] = true
		}
		for c, err := range openPage(t, r, info.Ledger, info.Name).Log(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			all[k][c.ID] = true
		}
	}
	return all
}

func openPage(t testing.TB, r *ledger.Repository, l, name string) *ledger.Page {
	t.Helper()
	p, err := r.Page(context.Background(), l, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// put writes to the target.
func put(t testing.TB, r *ledger.Repository, key, value string) {
	t.Helper()
	p := openPage(t, r, targetLedger, targetName)
	_, err := p.Update(context.Background(), func(tx *ledger.Tx) error { return tx.Put(context.Background(), []byte(key), []byte(value)) })
	if err := errors.Join(err, p.Close()); err != nil {
		t.Fatal(err)
	}
}

// read reads a key of the target, "" when it is not there.
func read(t testing.TB, r *ledger.Repository, key string) (value string) {
	t.Helper()
	p := openPage(t, r, targetLedger, targetName)
	err := p.View(context.Background(), func(s *ledger.Snapshot) error {
		b, err := s.Get(context.Background(), []byte(key))
		value = string(b)
		return err
	})
	if errors.Is(err, ledger.ErrNotFound) {
		err = nil
	}
	if err := errors.Join(err, p.Close()); err != nil {
		t.Fatal(err)
	}
	return value
}

// targetHeads returns the heads of the target.
func targetHeads(t testing.TB, r *ledger.Repository) ([]ledger.CommitID, error) {
	t.Helper()
	p := openPage(t, r, targetLedger, targetName)
	heads, err := headsOf(context.Background(), p)
	return heads, errors.Join(err, p.Close())
}

// TestForked shows two devices different logs after the same beginning, and then each the other's.
// Each notices that the last entry is not its own, and begins an epoch with what it has.
func TestForked(t *testing.T) {
	s := allScenes(t)[0]
	ctx := t.Context()
	var owners [2]*owner
	var devices [2]*ledger.Repository
	var ends [2]mem.State
	var own [2]ledger.CommitID
	for i := range owners {
		owners[i] = newOwner(s.end)
		r, err := s.clone(ctx, owners[i])
		if err != nil {
			t.Fatal(err)
		}
		defer closeIt(t, r)
		put(t, r, "fork", fmt.Sprint("side ", i))
		if _, err := r.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		put(t, r, "longer", "x")
		if _, err := r.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		devices[i], ends[i] = r, owners[i].b.State()
		heads, err := targetHeads(t, r)
		if err != nil || len(heads) != 1 {
			t.Fatalf("device %d has the heads %v, %v", i, heads, err)
		}
		own[i] = heads[0]
	}
	var mended [2]bool
	for i, r := range devices {
		owners[i].show(ends[1-i], lies{})
		_, err := r.Sync(ctx)
		mended[i] = owners[i].mended() != ""
		if !mended[i] && !errors.Is(err, ledger.ErrCloudReplaced) && !errors.Is(err, ledger.ErrCloudRolledBack) {
			t.Errorf("device %d was shown the other side: %v", i, err)
		}
		now, err := targetHeads(t, r)
		if err != nil || !slices.Contains(now, own[i]) { // beside the other side's head, where it took that too
			t.Errorf("device %d has the heads %v, %v, and had %v", i, now, err, own[i])
		}
	}
	// Both sides come together in what the owner shows at last.
	for round := range 2 {
		for i, r := range devices {
			owners[i].show(ends[1], lies{})
			if err := comeBack(ctx, r, mended[i] && round == 0); err != nil {
				t.Fatalf("device %d: %v", i, err)
			}
			ends[1] = owners[i].b.State()
		}
	}
	heads := [2][]ledger.CommitID{}
	for i, r := range devices {
		p := openPage(t, r, targetLedger, targetName)
		var err error
		if heads[i], err = headsOf(ctx, p); err != nil || len(heads[i]) != 2 {
			t.Errorf("device %d has the heads %v, %v", i, heads[i], err)
		}
		_ = p.Close() // it was only read
	}
	if fmt.Sprint(heads[0]) != fmt.Sprint(heads[1]) {
		t.Errorf("heads %v and %v", heads[0], heads[1])
	}
}
