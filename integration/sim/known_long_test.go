package sim_test

import (
	"testing"

	"github.com/ledgerd/ledger/integration/sim"
)

// TestKnownLong is TestKnownHistories for those that failed with more steps than usual.
func TestKnownLong(t *testing.T) {
	one := []sim.Device{{Name: "a"}}
	remove := func(key string) []sim.Change { return []sim.Change{{Op: sim.Remove, Key: key}} }
	runKnown(t, []known{
		{"a base that is stored again is copied as what is held", sim.History{Seed: 72002650, Gossip: true, Sweep: true, Cloud: &sim.Cloud{Plain: true}, Devices: one, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("z01", "1", 3000)},
			{Kind: sim.Edit, Changes: set("l00", "1", 3000)},
			{Kind: sim.Edit, Changes: set("l02", "1", 92160)},
			{Kind: sim.Sync, Base: 28},
			{Kind: sim.SweepCrash, Base: 5, Heads: 1, At: 10},
			{Kind: sim.Edit, Changes: set("l00", "0", 3000)},
			{Kind: sim.SweepCrash, Base: 7, Heads: 1, At: 18},
			{Kind: sim.Edit, Changes: set("z01", "0", 92160)},
			{Kind: sim.SweepCrash, Base: 3, Apart: true, At: 14},
			{Kind: sim.Compact},
			{Kind: sim.Sync},
			{Kind: sim.Compact},
		}}},
		{"a base that is stored again is found when the index is made anew", sim.History{Seed: 72003696, Gossip: true, Sweep: true, Cloud: &sim.Cloud{Plain: true}, Devices: one, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l00", "376", 0)},
			{Kind: sim.Edit, Changes: set("l02", "432", 1236)},
			{Kind: sim.Sync, Base: 9},
			{Kind: sim.Prune, Base: 1},
			{Kind: sim.Crash, At: 5, Changes: remove("l04")},
			{Kind: sim.Compact},
			{Kind: sim.Edit, Changes: remove("l00")},
			{Kind: sim.Sync, Base: 22},
			{Kind: sim.Reopen},
			{Kind: sim.Edit, Changes: set("l01", "786", 0)},
			{Kind: sim.Sync, Base: 19},
			{Kind: sim.Edit, Changes: remove("l02")},
			{Kind: sim.Prune, Base: 2},
			{Kind: sim.Edit, Changes: set("l01", "936", 76351)},
			{Kind: sim.Compact, Apart: true},
			{Kind: sim.Sync, Base: 25},
			{Kind: sim.Compact},
			{Kind: sim.SyncCrash},
		}}},
		{"a value that its maker still has goes up again when another device sends a commit without it", sim.History{Seed: 72001811, Devices: []sim.Device{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}, {Name: "f"}}, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 4, Changes: set("z02", "0", 1024803)},
			{Kind: sim.Retain, Device: 4, Base: 4},
			{Kind: sim.Collect, Device: 5, Base: 21},
			{Kind: sim.Edit, Device: 3, Changes: set("z03", "0", 603722)},
			{Kind: sim.Checkpoint, Device: 2, Base: 13},
			{Kind: sim.Collect, After: 8386730262443102, Device: 3, Base: 21},
			{Kind: sim.Collect, Device: 4, Base: 4},
			{Kind: sim.Retain, Device: 5, Base: 1},
			{Kind: sim.GiveUp, Device: 2, Base: 8},
			{Kind: sim.Edit, Device: 2, Changes: set("z03", "2", 206082)},
			{Kind: sim.Edit, Device: 4, Changes: set("z02", "1", 0)},
			{Kind: sim.Edit, Changes: set("z22", "2", 566908)},
			{Kind: sim.Edit, Device: 5, Changes: set("z22", "2", 0)},
			{Kind: sim.Collect, Base: 26},
			{Kind: sim.Sync, Device: 2, Base: 13},
			{Kind: sim.Collect, Base: 18},
			{Kind: sim.Edit, After: 8265162655231780, Device: 2, Changes: set("l11", "1", 0)},
			{Kind: sim.Collect, Base: 3},
			{Kind: sim.Checkpoint, Device: 5, Base: 15},
		}}},
	})
}
