package sim_test

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/integration/sim"
	"github.com/ledgerd/ledger/internal/tier"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "run the history of this seed alone, and tell what happens")
	historiesFlag = flag.Int("histories", 0, "how many histories the tests of random ones run")
	fromFlag      = flag.Uint64("from", 1_000_000*(tier.Seed()-1)+1, "the first seed of random histories")
	stepsFlag     = flag.Int("steps", 0, "how many steps a random history has, in place of what its test says: a seed is another history with another number")
)

// steps is the length of a history.
const steps = 60

// long returns how many steps the history of a seed has: what the flag says, or else usual, but for
// some that are longer.
func long(seed uint64, usual int) int {
	switch {
	case *stepsFlag > 0:
		return *stepsFlag
	case seed%50 == 49:
		return 160
	case seed%10 == 9:
		return 80
	}
	return usual
}

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // many small worlds, all of them garbage soon
	goleak.VerifyTestMain(m)
}

// histories is how many seeds are tried.
func histories() int {
	switch {
	case *historiesFlag > 0:
		return *historiesFlag
	case raceEnabled:
		return tier.Of(30, 60, 100_000)
	case testing.Short():
		return tier.Of(200, 500, 100_000)
	}
	return tier.Of(200, 1500, 100_000)
}

// TestHistories runs random histories. Every fiftieth has its stores checked.
func TestHistories(t *testing.T) {
	total := runSeeds(t, func(seed uint64) sim.History { return sim.Generate(seed, long(seed, steps)) })
	if *seedFlag > 0 {
		return
	}
	n := histories()
	// Without these the histories would prove little.
	if enough := n; total.ThreeWay < enough || total.CrissCross < enough/2 || total.Conflicts < enough {
		t.Errorf("%d histories have too few merges to prove anything: %+v", n, total)
	}
}

// runSeeds runs the history of the seed that the flag says, or those of many seeds from -from on,
// and returns what happened.
func runSeeds(t *testing.T, generate func(seed uint64) sim.History) (total sim.Result) {
	t.Helper()
	if *seedFlag > 0 {
		h := generate(*seedFlag)
		res, err := sim.Run(t.Context(), h, sim.Options{Check: true, Trace: t.Logf})
		if err != nil {
			report(t, h, err)
		}
		t.Logf("%+v", res)
		return res
	}
	var mu sync.Mutex
	n := histories()
	inParallel(n, func(i int) {
		if t.Failed() {
			return
		}
		seed := *fromFlag + uint64(i)
		res, err := sim.Run(t.Context(), generate(seed), sim.Options{Check: seed%50 == 0})
		mu.Lock()
		defer mu.Unlock()
		if err != nil && !t.Failed() {
			report(t, generate(seed), err)
		}
		total.Add(res)
	})
	t.Logf("%d histories: %+v", n, total)
	return total
}

// inParallel calls fn for 0 to n-1, on as many goroutines as there are processors.
func inParallel(n int, fn func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				fn(int(i - 1))
			}
		})
	}
	wg.Wait()
}

// report tells of a failure, with the shortest history that fails too, and how to see it again.
func report(t *testing.T, h sim.History, err error) {
	t.Helper()
	seed, last := h.Seed, err
	check := strings.Contains(err.Error(), "S8")
	h = sim.Minimise(h, 3000, func(h sim.History) bool {
		_, err := sim.Run(t.Context(), h, sim.Options{Check: check})
		if err != nil {
			last = err
		}
		return err != nil
	})
	var trace strings.Builder
	_, _ = sim.Run(t.Context(), h, sim.Options{Check: check, Trace: func(format string, args ...any) { writef(&trace, format, args...) }})
	replay := fmt.Sprintf("go test ./integration/sim -run %s -seed %d -v", t.Name(), seed)
	if *stepsFlag > 0 {
		replay += fmt.Sprintf(" -steps %d", *stepsFlag)
	}
	t.Errorf("seed %d: %v\n\nThe shortest history that fails, with %v:\n\n%#v\n\n%s\nReplay: %s", seed, err, last, h, &trace, replay)
}

func writef(b *strings.Builder, format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
