package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

const year = 365 * 24 * time.Hour

// Generate returns the history of a seed. It has the given number of steps, three to six devices,
// and a page of 5 to 40 keys.
func Generate(seed uint64, steps int) History {
	g := generator{rng: rand.New(rand.NewPCG(seed, 0x5eed))}
	h := History{Seed: seed, Disagree: g.one(4), Gossip: g.one(3), Cold: g.one(5)}
	named, tables, skew := !g.one(12), g.one(12), g.rng.IntN(4)
	for i := range 3 + g.rng.IntN(4) {
		d := Device{Table: tables, Skew: g.skew(skew)}
		if named {
			d.Name = string(rune('a' + i))
		}
		h.Devices = append(h.Devices, d)
	}
	g.devices = len(h.Devices)
	g.unique, g.removes, g.long = !g.one(3) && !tables, g.one(2), tables // equal values with different cuts
	g.pass = []time.Duration{0, 1, time.Millisecond, time.Hour}[g.rng.IntN(4)]
	g.chooseKeys()
	for i := range steps {
		h.Steps = append(h.Steps, g.step(i))
	}
	return h
}

type generator struct {
	rng     *rand.Rand
	devices int
	keys    []string
	unique  bool // every Set has a distinct value
	removes bool
	long    bool          // some values are cut into several pieces
	width   int           // of the elements of sets
	pass    time.Duration // the longest time between two steps
}

func (g *generator) one(in int) bool { return g.rng.IntN(in) == 0 }

func (g *generator) skew(mode int) time.Duration {
	switch mode {
	case 0:
		return 0
	case 1:
		return time.Duration(g.rng.IntN(5)) // equal and nearly equal timestamps
	case 2:
		return time.Duration(g.rng.Int64N(int64(time.Hour)))
	default:
		return time.Duration(g.rng.Int64N(int64(20*year))) - 10*year
	}
}

// chooseKeys chooses up to 40 keys in some or all name spaces.
func (g *generator) chooseKeys() {
	all := []string{"l", "c", "m", "m+", "s", "s+", "f", "r"}
	g.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:1+g.rng.IntN(len(all))]
	if g.one(3) {
		all = []string{"l"}
	}
	g.width = 1
	if g.one(4) {
		g.width = 60 // long enough that a set of several elements is not inline
	}
	n := 5 + g.rng.IntN(36)
	if g.one(8) {
		n = 1 + g.rng.IntN(3) // few keys, so that devices reach equal content in different ways
	}
	for i := range n {
		g.keys = append(g.keys, fmt.Sprintf("%s%02d", all[i%len(all)], i))
	}
}

// key prefers the first keys, so that edits collide.
func (g *generator) key() string {
	n := len(g.keys)
	if g.one(2) {
		n = min(n, 4)
	}
	return g.keys[g.rng.IntN(n)]
}

func (g *generator) step(i int) Step {
	s := Step{Device: g.rng.IntN(g.devices)}
	if g.pass > 0 && g.one(2) {
		s.After = time.Duration(g.rng.Int64N(int64(g.pass) + 1))
	}
	switch n := g.rng.IntN(100); {
	case n < 38:
		s.Kind, s.Changes = Edit, g.changes(i)
	case n < 48:
		s.Kind, s.Changes, s.Base = Sibling, g.changes(i), g.rng.IntN(6)
	case n < 72:
		s.Kind, s.Apart = Deliver, g.one(3)
		s.Peer = (s.Device + 1 + g.rng.IntN(g.devices-1)) % g.devices
		s.Heads = g.mask()
	case n < 94:
		s.Kind, s.Heads = Merge, g.mask()
	case n < 97:
		s.Kind = Reopen
	default:
		s.Kind, s.Changes, s.At = Crash, g.changes(i), g.rng.IntN(8)
	}
	return s
}

func (g *generator) mask() uint64 {
	if g.one(2) {
		return 0
	}
	return uint64(1 + g.rng.IntN(15))
}

// changes makes the changes of one transaction: mostly one, on different keys.
func (g *generator) changes(step int) []Change {
	n := 1
	if g.one(3) {
		n += g.rng.IntN(4)
	}
	var cs []Change
	seen := map[string]bool{}
	for range n {
		if k := g.key(); !seen[k] {
			seen[k] = true
			cs = append(cs, g.change(k, step*8+len(cs)))
		}
	}
	return cs
}

func (g *generator) change(key string, serial int) Change {
	c := Change{Key: key, Text: strconv.Itoa(serial)}
	if !g.unique {
		c.Text = strconv.Itoa(g.rng.IntN(3))
	}
	switch key[:2] {
	case "m+":
		c.Op, c.Text = Raise, strconv.Itoa(g.rng.IntN(100))
		return c
	case "s+":
		c.Op, c.Text = Insert, g.element()
		return c
	}
	switch key[0] {
	case 'c':
		c.Op, c.Text = Add, strconv.Itoa(1+g.rng.IntN(2)*(g.rng.IntN(9)-4)) // mostly 1, so that devices add the same
	case 's':
		c.Op, c.Text = Insert, g.element()
		if g.one(3) {
			c.Op = Erase
		}
	default:
		if g.removes && g.one(4) {
			return Change{Op: Remove, Key: key}
		}
		switch {
		case key[0] != 'l':
		case g.long && g.one(3):
			c.Size = 40 << 10
		case g.one(16):
			c.Size = 300
		}
	}
	return c
}

// element returns one of twelve elements.
func (g *generator) element() string {
	return strings.Repeat(string(rune('a'+g.rng.IntN(12))), g.width)
}
