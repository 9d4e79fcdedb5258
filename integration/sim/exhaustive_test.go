package sim_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/integration/sim"
	"github.com/ledgerd/ledger/internal/tier"
)

// TestInterleavings runs every order in which three devices can do (put, exchange) twice each:
// 34650, of which 5775 differ in more than the devices' names. An exchange is what sync will be:
// take what the hub has, merge, and give the hub what is new.
func TestInterleavings(t *testing.T) {
	const devices, actions = 3, 4
	every := tier.Of(20, 1, 1)
	if raceEnabled || testing.Short() {
		every = 20
	}
	all := orders(nil, slices.Repeat([]int{actions}, devices))
	if len(all) != 5775 {
		t.Errorf("%d interleavings, want 5775", len(all))
	}
	var total sim.Result
	var mu sync.Mutex
	inParallel(len(all)/every, func(i int) {
		if t.Failed() {
			return
		}
		h := interleaving(all[i*every])
		res, err := sim.Run(t.Context(), h, sim.Options{})
		if err != nil {
			t.Errorf("order %v: %v\n%#v", all[i*every], err, h)
		}
		mu.Lock()
		defer mu.Unlock()
		total.Add(res)
	})
	t.Logf("one in %d of %d interleavings: %+v", every, len(all), total)
}

// orders returns all orders of what is left for each device. Devices are named in the order in
// which they come.
func orders(done []int, left []int) (all [][]int) {
	over := true
	for d := range left {
		if left[d] == 0 {
			continue
		}
		over = false
		rest := slices.Clone(left)
		rest[d]--
		all = append(all, orders(append(slices.Clone(done), d), rest)...)
		if !slices.Contains(done, d) {
			break
		}
	}
	if over {
		return [][]int{done}
	}
	return all
}

func interleaving(order []int) sim.History {
	const hub = 3
	h := sim.History{Seed: 1, Devices: []sim.Device{{Name: "a"}, {Name: "b", Skew: 3}, {Name: "c", Skew: -3}, {Name: "hub"}}}
	var done [hub]int
	for i, d := range order {
		if done[d]++; done[d]%2 == 1 {
			v := fmt.Sprint(i)
			h.Steps = append(h.Steps, sim.Step{Kind: sim.Edit, Device: d, After: 1, Changes: []sim.Change{
				{Op: sim.Set, Key: "last", Text: v}, {Op: sim.Add, Key: "count", Text: "1"}, {Op: sim.Set, Key: "fraction", Text: v}, {Op: sim.Set, Key: "m0", Text: v},
			}})
			continue
		}
		h.Steps = append(h.Steps,
			sim.Step{Kind: sim.Deliver, Device: d, Peer: hub, After: 1}, sim.Step{Kind: sim.Merge, Device: d}, sim.Step{Kind: sim.Deliver, Device: hub, Peer: d})
	}
	return h
}
