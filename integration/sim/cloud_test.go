package sim_test

import (
	"flag"
	"strings"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/integration/sim"
)

var hazardsFlag = flag.String("hazards", "fclgbt", "what may happen in histories with a bucket: the first letters of the fields of sim.Hazards")

// cloudSteps is the length of a history with a bucket.
const cloudSteps = 24

// TestCloudHistories runs random histories of devices that share a bucket. Every fiftieth has its stores checked.
func TestCloudHistories(t *testing.T) {
	z := hazards()
	if *seedFlag > 0 {
		if res, err := sim.Run(t.Context(), sim.GenerateCloud(*seedFlag, cloudSteps, z), sim.Options{Check: true, Trace: t.Logf}); err != nil {
			report(t, sim.GenerateCloud(*seedFlag, cloudSteps, z), err)
		} else {
			t.Logf("%+v", res)
		}
		return
	}
	var total sim.Result
	var mu sync.Mutex
	n := histories()
	inParallel(n, func(i int) {
		if t.Failed() {
			return
		}
		seed := uint64(i + 1)
		res, err := sim.Run(t.Context(), sim.GenerateCloud(seed, cloudSteps, z), sim.Options{Check: seed%50 == 0})
		mu.Lock()
		defer mu.Unlock()
		if err != nil && !t.Failed() {
			report(t, sim.GenerateCloud(seed, cloudSteps, z), err)
		}
		total.Add(res)
	})
	t.Logf("%d histories: %+v", n, total)
	// Without these the histories would prove little.
	c := total.Cloud
	if n >= 500 && *hazardsFlag == flag.Lookup("hazards").DefValue && (c.Failed < n/2 || c.Reuploads < n/10 || c.Evictions < n/20 || c.Restored < n/20 || c.Crashes < n/2 || c.Packs < n/10 ||
		c.Checkpoints < n/10 || c.Ranges < n/50 || c.Deleted < n/50 || c.Read < n<<16) {
		t.Errorf("%d histories have too little trouble to prove anything: %+v", n, c)
	}
}

// hazards returns what may happen, as the flag says.
func hazards() sim.Hazards {
	has := func(letter string) bool { return strings.Contains(*hazardsFlag, letter) }
	return sim.Hazards{Faults: has("f"), Crashes: has("c"), Lazy: has("l"), Garbage: has("g"), Backups: has("b"), Trouble: has("t")}
}

// TestCloudReplay runs histories twice: equal seeds give equal requests, one by one.
func TestCloudReplay(t *testing.T) {
	most := uint64(30)
	if raceEnabled {
		most = 6
	}
	for seed := uint64(1); seed <= most; seed++ {
		var traces [2]strings.Builder
		for i := range traces {
			res, err := sim.Run(t.Context(), sim.GenerateCloud(seed, cloudSteps, hazards()), sim.Options{Trace: func(format string, args ...any) {
				writef(&traces[i], format, args...)
			}})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			writef(&traces[i], "%+v", res)
		}
		if traces[0].String() != traces[1].String() {
			t.Errorf("seed %d ran differently:\n%s\n\n%s", seed, &traces[0], &traces[1])
		}
	}
}
