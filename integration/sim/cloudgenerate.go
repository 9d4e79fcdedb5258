package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/mem"
)

// Hazards selects the events in histories with a bucket, besides edits, merges and syncs. The zero
// value is the calmest.
type Hazards struct {
	// Faults makes requests fail, in most histories.
	Faults bool
	// Crashes, interrupted calls and lost networks.
	Crashes bool
	// Lazy values; and pieces, pages and processes that are dropped.
	Lazy bool
	// Garbage is collected, checkpoints are written, and weeks pass.
	Garbage bool
	// Backups are restored, and rows about the bucket are lost.
	Backups bool
	// Trouble wipes buckets and rolls them back.
	Trouble bool
	// Sweeping collects garbage on devices between any two steps, concurrently with snapshots and
	// transactions of several steps.
	Sweeping bool
	// Pruning gives up history.
	Pruning bool
	// Rewriting compacts segments.
	Rewriting bool
	// Newcomers are devices that are cloned from the bucket.
	Newcomers bool
	// Years sets clocks forward and back by years.
	Years bool
	// Damage removes single objects from the bucket. It wipes the bucket or rolls it back while
	// processes go on.
	Damage bool
	// Keeping limits the history in the bucket: devices give up the rest, and later the bucket
	// does, while other devices are offline.
	Keeping bool
}

// AllHazards selects every hazard.
var AllHazards = Hazards{true, true, true, true, true, true, true, true, true, true, true, true, true}

// GenerateCloud returns the history of a seed with a shared bucket. It has the given number of
// steps, three to six devices, and a page of 5 to 40 keys.
func GenerateCloud(seed uint64, steps int, z Hazards) History {
	h := Generate(seed, 0)
	g := cloudGenerator{generator: generator{rng: rand.New(rand.NewPCG(seed, 0xc10d)), devices: len(h.Devices)}}
	for i := range h.Devices {
		h.Devices[i].Table = false // all use the table of the bucket
	}
	h.Cloud = &Cloud{Plain: g.one(8)}
	if z.Faults && !g.one(4) {
		h.Cloud.Faults = g.faults()
	}
	g.choose(z)
	if z.Sweeping && g.one(4) {
		h.Sweep = true
		g.sweeps(z)
	}
	if g.one(16) { // a log long enough for ranges
		for i := range 33 {
			h.Steps = append(h.Steps, Step{Kind: Edit, Changes: g.changes(1000 + i)}, Step{Kind: Sync})
		}
	}
	for i := range steps {
		if g.collects && i == steps/2 {
			h.Steps = append(h.Steps, g.collection()...)
		}
		h.Steps = append(h.Steps, g.next(i))
	}
	return h
}

// GenerateGarbage returns the history of a seed that makes garbage. It has the given number of
// steps, and one or two devices, most of them with a bucket.
func GenerateGarbage(seed uint64, steps int, z Hazards) History {
	h := Generate(seed, 0)
	g := cloudGenerator{generator: generator{rng: rand.New(rand.NewPCG(seed, 0x6a4ba6e))}}
	g.devices = 1 + g.rng.IntN(2)
	h.Devices = h.Devices[:g.devices]
	for i := range h.Devices {
		h.Devices[i].Table = false
	}
	h.Cloud, h.Sweep = &Cloud{Plain: true}, true
	local := g.one(3)
	g.choose(Hazards{Lazy: z.Lazy})
	g.large, g.kinds, g.bulky = 0, nil, !g.one(3)
	g.keys = g.keys[:min(len(g.keys), 2+g.rng.IntN(5))]
	if g.bulky && !g.one(3) { // repeat values
		g.unique = false
		for i := range g.keys {
			g.keys[i] = []string{"l", "z"}[i%2] + g.keys[i][len(g.keys[i])-2:]
		}
	}
	g.add(14, Edit)
	if local {
		h.Cloud = nil
		g.add(2, Deliver, Merge)
	} else {
		g.add(1+g.rng.IntN(6), Sync)
	}
	g.add(1, Sibling, Merge, Reopen)
	if z.Crashes {
		g.add(1, Crash, SyncCrash)
	}
	if z.Lazy && g.one(2) && !local {
		g.add(1, Drop, Evict, Fetch, Read)
	}
	if g.one(4) {
		g.add(1, Tag)
	}
	g.sweeps(z)
	for i := range steps {
		h.Steps = append(h.Steps, g.next(i))
	}
	return h
}

// sweeps adds steps that make garbage and collect it.
func (g *cloudGenerator) sweeps(z Hazards) {
	g.add(1, Sweep, Begin, End)
	g.add(2, Pin, Unpin)
	if g.one(2) {
		g.add(3, Begin, End)
	}
	if z.Crashes {
		g.add(1, SweepCrash)
	}
	if z.Pruning && !g.one(3) {
		g.add(4, Prune)
	}
	if z.Rewriting && g.one(2) {
		g.add(2, Compact)
	}
}

func (g *cloudGenerator) add(n int, kinds ...Kind) {
	for range n {
		g.kinds = append(g.kinds, kinds...)
	}
}

// collection returns steps that cut the log, and a month later delete the garbage of the cut.
func (g *cloudGenerator) collection() (steps []Step) {
	for i := range 4 {
		steps = append(steps, Step{Kind: Edit, Changes: g.longChanges(2000 + i)}, Step{Kind: Checkpoint, Device: i % 2})
	}
	return append(steps, Step{Kind: Collect, After: 2 * 24 * time.Hour}, g.next(2004), g.next(2005), Step{Kind: Collect, Device: 1, After: 31 * 24 * time.Hour})
}

type cloudGenerator struct {
	generator
	kinds   []Kind // each as often as it is likely
	large   int    // one value in this many has up to a MiB; 0: none
	damages bool   // trouble occurs while processes go on
	bulky   bool   // most values have one of a few lengths, so that values and chunks repeat
	// collects allows cuts of the log, and the deletion of garbage after its grace.
	collects bool
}

func (g *cloudGenerator) faults() mem.Faults {
	rate := []float64{0.01, 0.03, 0.1}[g.rng.IntN(3)]
	one := func() float64 {
		if g.one(3) {
			return 0
		}
		return rate
	}
	f := mem.Faults{Conflict: one(), TooMany: one(), Unavailable: one(), Refused: one(), LostAnswer: one(), CutBody: one(), SlowBody: one()}
	if g.one(3) {
		f.WrongByte = rate / 2
	}
	if g.one(2) {
		f.WriteInterval = time.Second
	}
	return f
}

// choose chooses the subject of the history.
func (g *cloudGenerator) choose(z Hazards) {
	g.unique, g.removes = !g.one(3), g.one(2)
	g.pass = []time.Duration{0, time.Millisecond, time.Minute, time.Hour, 24 * time.Hour}[g.rng.IntN(5)]
	g.chooseKeys()
	if z.Lazy && g.one(2) {
		for i := range g.keys {
			if g.keys[i][0] == 'l' && g.one(2) {
				g.keys[i] = "z" + g.keys[i][1:]
			}
		}
	}
	if g.one(5) {
		g.large = 10
	}
	add := g.add
	add(16, Edit, Sync)
	add(2, Sibling, Merge)
	add(1, Reopen)
	if z.Crashes && !g.one(3) {
		add(2, Crash, SyncCrash)
		add(1, Network)
	}
	if z.Lazy {
		add(2, Read)
		add(1, Build)
		if g.one(2) {
			add(1, Drop, Evict, Fetch)
		}
		if g.one(3) {
			add(1, Tag)
		}
	}
	if z.Garbage {
		if g.one(2) {
			add(1, Checkpoint)
		}
		if g.one(5) {
			g.pass = []time.Duration{2, 45}[g.rng.IntN(2)] * 24 * time.Hour
			add(5, Checkpoint, Collect)
			g.collects = true
		}
	}
	if z.Keeping && g.one(3) {
		g.pass = []time.Duration{1, 10, 31, 100}[g.rng.IntN(4)] * 24 * time.Hour
		add(2, Retain, GiveUp, Collect)
		add(1, Collect, Checkpoint, Tag)
	}
	if z.Backups && g.one(4) {
		add(2, Backup, Restore)
		add(1, Forget)
	}
	if z.Trouble && g.one(5) {
		add(1, Keep, Rollback, Wipe, Reupload, Reupload)
	}
	if z.Newcomers && g.one(4) {
		add(1, Clone)
	}
	if z.Years && g.one(4) {
		add(2, Reset)
	}
	if g.damages = z.Damage && g.one(10); g.damages {
		add(1, Lose, Lose, Keep, Rollback, Reupload)
	}
}

func (g *cloudGenerator) next(i int) Step {
	s := Step{Device: g.rng.IntN(g.devices), Kind: g.kinds[g.rng.IntN(len(g.kinds))]}
	if g.pass > 0 && g.one(2) {
		s.After = time.Duration(g.rng.Int64N(int64(g.pass) + 1))
	}
	switch s.Kind {
	case Edit:
		s.Changes = g.longChanges(i)
	case Crash:
		s.Changes, s.At = g.longChanges(i), g.rng.IntN(8)
	case Sibling:
		s.Changes, s.Base = g.longChanges(i), g.rng.IntN(6)
	case Merge:
		s.Heads = g.mask()
	case Deliver:
		s.Peer, s.Heads, s.Apart = g.rng.IntN(g.devices), g.mask(), g.one(3)
	case Retain:
		if s.Base = g.rng.IntN(5); g.one(12) {
			s.Stop = 1 + g.rng.IntN(12)
		}
	case Sync, Fetch, Build, Checkpoint, Collect, GiveUp, Reupload:
		s.Base = g.rng.IntN(30)
		if g.one(12) {
			s.Stop = 1 + g.rng.IntN(12)
		}
	case SyncCrash:
		if s.At = g.rng.IntN(16); g.one(2) {
			s.Stop, s.Apart = 1+g.rng.IntN(8), g.one(2)
		}
	case Rollback, Wipe:
		s.Apart = g.damages && g.one(2)
	case Lose:
		s.Base = g.rng.IntN(100)
	case Reset:
		s.Base = []int{-520, -52, -1, 0, 1, 52, 520}[g.rng.IntN(7)]
	case Sweep:
		s.Base = 1 + g.rng.IntN(12)
	case SweepCrash:
		s.Base, s.At, s.Apart = g.rng.IntN(8), g.rng.IntN(8), slices.Contains(g.kinds, Prune) && g.one(2)
		if slices.Contains(g.kinds, Compact) && g.one(2) {
			s.Heads, s.At = 1, g.rng.IntN(24)
		}
	case Compact:
		s.Apart = g.one(3)
	case Prune:
		s.Base = 1 + g.rng.IntN(4)
	case Pin:
		s.Base = g.rng.IntN(6)
	case Begin:
		s.Changes, s.Apart = g.longChanges(i), g.one(2)
	case End:
		s.Apart = g.one(3)
	case Network:
		s.Base = g.rng.IntN(2)
	case Read:
		s.Base = g.rng.IntN(40)
	case Drop:
		if g.one(2) {
			s.Heads = g.rng.Uint64()
		}
	case Tag:
		s.Peer, s.Base = g.rng.IntN(3), g.rng.IntN(8)-1
	case Restore:
		s.Peer, s.Apart = s.Device, g.one(2)
		if g.one(3) {
			s.Peer, s.Apart = g.rng.IntN(g.devices), true
		}
	case Forget:
		if g.one(2) {
			s.Heads = g.rng.Uint64() & 0xff
		}
	}
	return s
}

// longChanges makes the changes of a transaction, some of them long.
func (g *cloudGenerator) longChanges(step int) []Change {
	cs := g.changes(step)
	for i := range cs {
		c := &cs[i]
		if c.Op != Set || c.Key[0] != 'l' && c.Key[0] != 'z' {
			continue
		}
		switch {
		case g.bulky && !g.one(4):
			c.Size = []int{500, 3000, 30 << 10, 90 << 10}[g.rng.IntN(4)]
		case g.large > 0 && g.one(g.large):
			c.Size = 200<<10 + g.rng.IntN(900<<10)
		case g.one(4):
			c.Size = 300 + g.rng.IntN(3000)
		case g.one(8):
			c.Size = 20<<10 + g.rng.IntN(60<<10)
		}
	}
	return cs
}
