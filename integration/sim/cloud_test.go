package sim_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/integration/sim"
)

var hazardsFlag = flag.String("hazards", "fclgbtspnydrk", "what may happen in histories with a bucket: the first letters of the fields of sim.Hazards")

// cloudSteps is the length of a history with a bucket.
const cloudSteps = 24

// TestCloudHistories runs random histories of devices that share a bucket. Every fiftieth has its
// stores checked.
func TestCloudHistories(t *testing.T) {
	z := hazards()
	total := runSeeds(t, func(seed uint64) sim.History { return sim.GenerateCloud(seed, long(seed, cloudSteps), z) })
	if *seedFlag > 0 {
		return
	}
	n := histories()
	// Without these the histories would prove little.
	c := total.Cloud
	if n >= 500 && *hazardsFlag == flag.Lookup("hazards").DefValue && (c.Failed < n/2 || c.Reuploads < n/10 || c.Evictions < n/20 || c.Restored < n/20 || c.Crashes < n/2 || c.Packs < n/10 ||
		c.Checkpoints < n/10 || c.Deleted < n/50 || c.Read < n<<16) {
		t.Errorf("%d histories have too little trouble to prove anything: %+v", n, c)
	}
}

// garbageSteps is the length of a history about garbage.
const garbageSteps = 34

// TestGarbage runs random histories of one or two devices on which garbage is collected, a step of
// the collector between any two: all that is reachable can be read, all garbage is gone after two
// cycles, and nothing that is not in the bucket is lost. Every fiftieth has its stores checked.
func TestGarbage(t *testing.T) {
	z := hazards()
	total := runSeeds(t, func(seed uint64) sim.History { return sim.GenerateGarbage(seed, long(seed, garbageSteps), z) })
	if s := total.Sweeps; histories() >= 1500 && *seedFlag == 0 && *hazardsFlag == flag.Lookup("hazards").DefValue && (s.Deleted < histories()*2 || s.Pruned < histories()/2) {
		t.Errorf("too little garbage to prove anything: %+v", s)
	}
}

// hazards returns what may happen, as the flag says.
func hazards() sim.Hazards {
	has := func(letter string) bool { return strings.Contains(*hazardsFlag, letter) }
	return sim.Hazards{Faults: has("f"), Crashes: has("c"), Lazy: has("l"), Garbage: has("g"), Backups: has("b"), Trouble: has("t"), Sweeping: has("s"), Pruning: has("p"), Newcomers: has("n"), Years: has("y"),
		Damage: has("d"), Rewriting: has("r"), Keeping: has("k")}
}

// TestCloudReplay runs histories twice: equal seeds give equal requests, one by one.
func TestCloudReplay(t *testing.T) {
	most := 30
	switch {
	case raceEnabled:
		most = 6
	case *historiesFlag > 0:
		most = *historiesFlag
	}
	for name, generate := range map[string]func(seed uint64) sim.History{
		"cloud":   func(seed uint64) sim.History { return sim.GenerateCloud(seed, long(seed, cloudSteps), hazards()) },
		"garbage": func(seed uint64) sim.History { return sim.GenerateGarbage(seed, long(seed, garbageSteps), hazards()) },
	} {
		for seed := *fromFlag; seed < *fromFlag+uint64(most); seed++ {
			var traces [2]strings.Builder
			for i := range traces {
				res, err := sim.Run(t.Context(), generate(seed), sim.Options{Trace: func(format string, args ...any) {
					writef(&traces[i], format, args...)
				}})
				if err != nil {
					t.Fatalf("%s, seed %d: %v", name, seed, err)
				}
				writef(&traces[i], "%+v", res)
			}
			if traces[0].String() != traces[1].String() {
				t.Errorf("%s, seed %d ran differently:\n%s\n\n%s", name, seed, &traces[0], &traces[1])
			}
		}
	}
}
