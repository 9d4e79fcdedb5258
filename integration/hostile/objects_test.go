package hostile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// damage is a change of an object's bytes.
type damage struct {
	name    string
	content []byte
}

// damages returns all changes of an object's bytes that are tried.
func damages(b []byte) (all []damage) {
	flip := func(at int) {
		c := bytes.Clone(b)
		c[at] ^= 1 << (at % 8)
		all = append(all, damage{fmt.Sprintf("flip at %d of %d", at, len(b)), c})
	}
	ends := min(32, len(b)/2)
	for i := range ends {
		flip(i)
		flip(len(b) - 1 - i)
	}
	for i := range 40 {
		if at := i * len(b) / 40; at >= ends && at < len(b)-ends {
			flip(at)
		}
	}
	for _, n := range []int{0, 1, 4, 5, len(b) / 4, len(b) / 2, len(b) - 17, len(b) - 1} {
		if n >= 0 && n < len(b) {
			all = append(all, damage{fmt.Sprintf("cut to %d of %d", n, len(b)), b[:n:n]})
		}
	}
	return append(all,
		damage{"all zero", make([]byte, len(b))},
		damage{"one byte more", append(bytes.Clone(b), 0)},
		damage{"twice", append(bytes.Clone(b), b...)},
		damage{"noise", noise(uint64(len(b)), len(b))},
		damage{"HTML", []byte("<html><body>please log in</body></html>")},
	)
}

// target is an object to be attacked.
type target struct {
	s          *scene
	kind, name string
}

func (g target) String() string {
	_, short, _ := strings.Cut(g.name, g.s.target.Dir+"/")
	if short == "" {
		short = g.kind
	}
	return g.s.name + "/" + strings.ReplaceAll(short, "/", "-")
}

// worth lists the kinds of objects that a scene is for; the others are attacked there only when
// everything is.
var worth = map[string][]string{
	"packs": {kindPack}, "diffs": {kindDiff}, "bodies": {kindBody},
	"checkpoints": {kindEpoch, kindEntry, kindPack, kindCheckpoint, kindRun}, "turn": {kindClosing, kindCheckpoint, kindRun},
	"rings": {kindRing, kindEntry},
}

// targets returns the objects to be attacked: of each kind that a scene is for the last ones, or
// all.
func targets(t testing.TB, most int) (all []target) {
	for _, s := range allScenes(t) {
		kinds := s.byKind()
		for _, k := range sortedKeys(kinds) {
			if only := worth[s.name]; only != nil && !everything() && !slices.Contains(only, k) {
				continue
			}
			names := kinds[k]
			if !everything() {
				names = s.some(names, most)
			}
			for _, n := range names {
				all = append(all, target{s, k, n})
			}
		}
	}
	return all
}

// some returns the last ones of a kind that are read, and of a log the first and that in its midst.
func (s *scene) some(names []string, most int) (some []string) {
	read := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return s.read[n] == nil })
	if len(read) == 0 {
		read = names
	}
	n := len(read)
	if n <= most {
		return read
	}
	if s.kindOf(read[0]) == kindEntry && s.name == "entries" {
		some = []string{read[0], read[n*2/3]}
	}
	return append(some, read[n-most:]...)
}

func sortedKeys[V any](m map[string]V) (ks []string) {
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

// sample draws n of all, or takes all.
func sample[T any](rng *rand.Rand, all []T, n int) []T {
	if everything() || len(all) <= n {
		return all
	}
	all = slices.Clone(all)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:n]
}

// TestDamaged changes the bytes of every kind of object.
func TestDamaged(t *testing.T) {
	rng := seeded(t)
	noticed, cases := map[string]int{}, map[string]int{}
	for _, g := range targets(t, 2) {
		t.Run(g.String(), func(t *testing.T) {
			n := 5
			if g.costly() {
				n = 2 // each costs as much as thousands of keys
			}
			for i, d := range sample(rng, damages(g.s.content[g.name]), n) {
				a := &attack{s: g.s, state: g.s.with(g.name, d.content), object: g.name}
				found, said := a.strike(t, i)
				if t.Failed() {
					t.Fatalf("%s: %s", d.name, said)
				}
				if cases[g.kind]++; found {
					noticed[g.kind]++
				} else if !g.elsewhere() && !g.lazy() && !g.behind(d.content) && !g.unread(d.content) {
					t.Errorf("%s: nobody has noticed", d.name)
				}
			}
		})
	}
	t.Logf("cases %v, noticed %v", cases, noticed)
}

// TestWithheld takes each kind of object away. What nobody can notice is the end of a log, and a
// page that a device has never seen.
func TestWithheld(t *testing.T) {
	for _, g := range targets(t, 1) {
		t.Run(g.String(), func(t *testing.T) {
			a := &attack{s: g.s, state: g.s.with(g.name, nil), object: g.name, withheld: true}
			fresh, old := a.newDevice(t), a.oldDevice(t)
			if t.Failed() {
				t.Fatalf("new device: %v; old device: %v", fresh, old)
			}
			if g.kind == kindKeys && (!errors.Is(fresh, ledger.ErrNotFound) || !errors.Is(old, ledger.ErrCloudRolledBack)) {
				t.Errorf("new device: %v; old device: %v", fresh, old)
			}
		})
	}
}

// TestNewerVersion has each kind of object say that it is of a later version, as anybody can have
// it who writes into the bucket: that is damage as any other, for which a user can upload anew on a
// device that has what was in it.
func TestNewerVersion(t *testing.T) {
	for i, g := range targets(t, 1) {
		c := bytes.Clone(g.s.content[g.name])
		c[0] = 201
		a := &attack{s: g.s, state: g.s.with(g.name, c), object: g.name}
		if _, said := a.strike(t, i%2); t.Failed() {
			t.Fatalf("%s: %s", g, said)
		}
		if strings.HasPrefix(g.name, g.s.target.Dir) {
			a.reupload(t)
		}
		if t.Failed() {
			t.Errorf("%s: upload anew", g)
		}
	}
}

// reupload has a device that knows everything upload anew, and a new one come.
func (a *attack) reupload(t *testing.T) {
	t.Helper()
	o := newOwner(a.s.done)
	r, err := a.s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	p := openPage(t, r, targetLedger, targetName)
	if _, err := valuesOf(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	_ = p.Close() // it was only read
	o.show(a.state, lies{})
	if a.s.kindOf(a.object) == kindPack { // an epoch goes on to name what is there
		_, err = admin.CheckCloud(t.Context(), r, &admin.CloudCheckOptions{Repair: true})
	} else {
		_, err = admin.Reupload(t.Context(), r)
	}
	if err != nil {
		t.Errorf("upload anew: %v", err)
		return
	}
	fresh, err := a.s.clone(t.Context(), o)
	if err != nil {
		t.Errorf("clone: %v", err)
		return
	}
	defer closeIt(t, fresh)
	a.healed(t, fresh)
}

// costly reports whether each device that meets the object costs as much as thousands of keys.
func (g target) costly() bool { return g.s.name == "diffs" || g.s.name == "bodies" }

// elsewhere reports whether neither a new device nor one of the middle of the scene asks for the
// object, as what it has stands in a later checkpoint too.
func (g target) elsewhere() bool { return g.s.read[g.name] == nil }

// unread reports whether what devices ask for of a pack is as it was: of an older one a checkpoint
// may need some frames only.
func (g target) unread(content []byte) bool {
	well := g.s.content[g.name]
	return g.kind == kindPack && len(content) == len(well) && !slices.ContainsFunc(g.s.read[g.name], func(p part) bool {
		return !bytes.Equal(p.of(content), p.of(well))
	})
}

// behind reports whether only what stands behind the last block of a difference differs: a reader
// takes the blocks that the place names, each sealed by itself, and the tree proves that they are
// all.
func (g target) behind(content []byte) bool {
	well := g.s.content[g.name]
	n := len(well) - trailerBytes
	return g.kind == kindDiff && len(content) >= n && bytes.Equal(content[:n], well[:n])
}

// trailerBytes is more than what stands behind the last block of a sealed object.
const trailerBytes = 64

// lazy reports whether a pack has only lazy pieces: of it the table is read, and its frames when
// somebody asks for the values, as judge does.
func (g target) lazy() bool { return g.s.lazy[g.name] }
