package background_test

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/cloudsync/seal/sealtest"
	"github.com/ledgerd/ledger/internal/tier"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "run the history of this seed alone, and tell what happens")
	historiesFlag = flag.Int("histories", 0, "how many histories are run")
	fromFlag      = flag.Uint64("from", 1_000_000*(tier.Seed()-1)+1, "the first seed")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := sealtest.WarmUp(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// steps is the length of a history.
const steps = 40

func histories() int {
	switch {
	case *historiesFlag > 0:
		return *historiesFlag
	case testing.Short():
		return tier.Of(20, 20, 20_000)
	}
	return tier.Of(20, 50, 20_000)
}

// TestHistories runs random histories.
func TestHistories(t *testing.T) {
	if *seedFlag > 0 {
		h := generate(*seedFlag, steps)
		if err := watched(t, h, t.Logf); err != nil {
			t.Errorf("%v\n%v", err, h)
		}
		return
	}
	var next atomic.Int64
	for i := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for n := next.Add(1) - 1; n < int64(histories()) && !t.Failed(); n = next.Add(1) - 1 {
				h := generate(*fromFlag+uint64(n), steps)
				if err := watched(t, h, quietly); err != nil {
					report(t, h, err)
				}
			}
		})
	}
}

func quietly(string, ...any) {}

// watched runs a history, and ends the test when it does not come to an end: a bubble in which
// something never rests cannot be left.
func watched(t *testing.T, h History, trace func(string, ...any)) error {
	timer := time.AfterFunc(8*time.Minute, func() { panic(fmt.Sprintf("the history of seed %d does not rest", h.Seed)) })
	defer timer.Stop()
	return runHistory(t, h, trace)
}

// lastLines is how many lines of what happened are told.
const lastLines = 80

// report tells of a failure, with the shortest history that fails too.
func report(t *testing.T, h History, err error) {
	t.Helper()
	last := err
	short := minimise(h, 300, func(h History) bool {
		err := watched(t, h, quietly)
		if err != nil {
			last = err
		}
		return err != nil
	})
	var mu sync.Mutex
	var trace []string
	_ = watched(t, short, func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		trace = append(trace, fmt.Sprintf(format, args...))
	})
	t.Errorf("seed %d: %v\n\nThe shortest history that fails, with %v:\n\n%v\n%s\nReplay: go test ./integration/background -run Histories -seed %d -v", h.Seed, err, last, short, strings.Join(trace[max(0, len(trace)-lastLines):], "\n"), h.Seed)
}

// TestReplay runs histories twice: equal seeds let the same happen. Where requests are limited, it
// is left open which of several that are made beside each other goes first.
func TestReplay(t *testing.T) {
	for seed := *fromFlag; seed < *fromFlag+4; seed++ {
		if generate(seed, steps).Limited {
			continue
		}
		var traces [2][]string
		for i := range traces {
			var mu sync.Mutex // who has been waited for tells that himself
			if err := watched(t, generate(seed, steps), func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				traces[i] = append(traces[i], fmt.Sprintf(format, args...))
			}); err != nil {
				t.Fatal(err)
			}
			slices.Sort(traces[i]) // each line begins with the time, and what happens at one moment is told in any order
		}
		if d := cmp.Diff(traces[0], traces[1]); d != "" {
			t.Errorf("seed %d (-first time +second):\n%s", seed, d)
		}
	}
}
