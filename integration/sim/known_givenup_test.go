package sim_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledger/integration/sim"
)

// TestKnownGivenUp is TestKnownHistories for histories in which history is given up.
func TestKnownGivenUp(t *testing.T) {
	two := []sim.Device{{Name: "a"}, {Name: "b"}}
	three := append(two, sim.Device{Name: "c"})
	four := append(three, sim.Device{Name: "d"})
	runKnown(t, []known{
		{"of two unsynced heads one stands on what is given up", sim.History{Devices: four, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l00", "8216", 0)},
			{Kind: sim.Edit, Changes: set("l02", "8232", 0)},
			{Kind: sim.Edit, Changes: set("l01", "8240", 0)},
			{Kind: sim.Edit, Changes: set("l08", "8248", 0)},
			{Kind: sim.Edit, Changes: set("l02", "8256", 0)},
			{Kind: sim.Sync},
			{Kind: sim.Retain, Device: 2, Base: 3},
			{Kind: sim.Edit, Changes: set("l08", "24", 0)},
			{Kind: sim.Edit, Device: 1, Changes: set("l10", "48", 0)},
			{Kind: sim.Collect, Device: 1, Base: 20},
			{Kind: sim.Sibling, Base: 5, Changes: set("l00", "65", 0)},
			{Kind: sim.Edit, After: 63 * 24 * time.Hour, Device: 2, Changes: set("l01", "72", 0)},
		}}},
		{"a commit that is given up and kept for a transaction gets a tag", sim.History{Seed: 9200117, Sweep: true, Devices: two, Steps: []sim.Step{
			{Kind: sim.Retain, Base: 3},
			{Kind: sim.Edit, Device: 1, Changes: set("f00", "104", 0)},
			{Kind: sim.Edit, Device: 1, Changes: set("f00", "112", 0)},
			{Kind: sim.Edit, Changes: set("m01", "128", 0)},
			{Kind: sim.Sync, Device: 1, Base: 16},
			{Kind: sim.Evict, Device: 1},
			{Kind: sim.Edit, Device: 1, Changes: set("f00", "168", 0)},
			{Kind: sim.Sync, Device: 1, Base: 22},
			{Kind: sim.Begin, Changes: set("f00", "257", 0)},
			{Kind: sim.GiveUp, Base: 9},
			{Kind: sim.Tag, Peer: 1, Base: 5},
		}}},
		{"a lost bucket shows a head that others had given up, and no merge stands on it there", sim.History{Seed: 9200230, Disagree: true, Gossip: true, Devices: []sim.Device{{Name: "a"}, {Name: "b"}, {Name: "c", Skew: -68652807389358712}}, Steps: []sim.Step{
			{Kind: sim.Retain, Device: 2, Base: 3},
			{Kind: sim.Keep},
			{Kind: sim.Edit, Changes: []sim.Change{{Op: sim.Raise, Key: "m+23", Text: "23"}}},
			{Kind: sim.Edit, Device: 1, Changes: set("m02", "160", 0)},
			{Kind: sim.Rollback, Device: 2},
			{Kind: sim.Edit, Device: 2, Changes: set("l16", "184", 34266)},
			{Kind: sim.GiveUp, Device: 2, Base: 19},
			{Kind: sim.Sync, Device: 1, Base: 18},
			{Kind: sim.GiveUp, Base: 8},
			{Kind: sim.Wipe, Device: 2},
		}}},
		{"of two unsynced heads on given-up history one stands on what this device never had", sim.History{Seed: 9501882, Gossip: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 2, Changes: []sim.Change{{Op: sim.Raise, Key: "m+05", Text: "58"}}},
			{Kind: sim.Edit, Device: 1, Changes: set("m06", "48", 0)},
			{Kind: sim.Sync, Device: 1, Base: 29},
			{Kind: sim.Sync, Device: 2, Base: 5},
			{Kind: sim.Edit, Changes: set("m06", "232", 0)},
			{Kind: sim.Retain, Base: 3},
			{Kind: sim.Edit, Device: 2, Changes: set("f02", "360", 0)},
			{Kind: sim.Edit, Device: 1, Changes: []sim.Change{{Op: sim.Insert, Key: "s01", Text: "j"}}},
			{Kind: sim.Edit, After: 8227958711414971, Changes: set("f02", "416", 0)},
			{Kind: sim.Collect, Base: 22},
			{Kind: sim.Sync, Device: 2, Base: 13},
			{Kind: sim.SyncCrash, Device: 1, At: 8},
			{Kind: sim.Edit, Changes: set("f02", "496", 0)},
			{Kind: sim.Edit, Changes: set("l03", "506", 0)},
			{Kind: sim.GiveUp, Base: 25},
			{Kind: sim.Edit, Device: 1, Changes: set("f02", "536", 0)},
			{Kind: sim.Edit, Changes: set("r00", "546", 0)},
		}}},
		{"an entry gives up what its own commits stand on, and a tag stays below them", sim.History{Seed: 9504728, Devices: four, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l02", "24", 0)},
			{Kind: sim.Sync, Base: 4},
			{Kind: sim.Edit, Device: 2, Changes: set("l00", "50", 0)},
			{Kind: sim.Sync, Device: 2, Base: 26},
			{Kind: sim.Retain, Device: 1, Base: 3},
			{Kind: sim.Edit, Changes: set("l00", "89", 0)},
			{Kind: sim.Tag, Device: 1, Base: 5},
			{Kind: sim.Edit, Changes: set("l00", "128", 0)},
			{Kind: sim.Reupload, Base: 27},
			{Kind: sim.Edit, Changes: set("l01", "154", 52817)},
			{Kind: sim.Collect, Device: 1, Base: 7},
			{Kind: sim.Sync, Device: 3, Base: 15},
			{Kind: sim.Sync, Base: 23},
			{Kind: sim.Lose, Device: 3, Base: 17},
			{Kind: sim.Sync, Device: 2, Base: 3},
			{Kind: sim.Collect, Device: 3, Base: 8},
		}}},
		{"a commit comes back below one that a checkpoint has", sim.History{Seed: 9504941, Sweep: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("z01", "2", 0)},
			{Kind: sim.Begin, Device: 1, Changes: set("z02", "1", 41735)},
			{Kind: sim.Edit, Changes: set("z01", "1", 2209)},
			{Kind: sim.End, Device: 1},
			{Kind: sim.Collect, Base: 10},
			{Kind: sim.Sync, Device: 1, Base: 8},
			{Kind: sim.Tag, Peer: 1, Base: 1},
			{Kind: sim.Sync, Base: 2},
			{Kind: sim.Sync, Device: 2, Base: 18},
			{Kind: sim.Prune, Base: 2},
			{Kind: sim.Wipe, Device: 2},
			{Kind: sim.Prune, Device: 1, Base: 1},
		}}},
		{"an unsynced commit needs a value that only what is given up below it needs besides", sim.History{Seed: 9340082, Sweep: true, Devices: four, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 3, Changes: set("z03", "392", 0)},
			{Kind: sim.Sync, Device: 3, Base: 13},
			{Kind: sim.Retain, Base: 2},
			{Kind: sim.Checkpoint, Device: 2, Base: 4},
			{Kind: sim.Sync, Device: 1, Base: 17},
			{Kind: sim.Edit, Device: 1, Changes: set("z03", "688", 635)},
			{Kind: sim.Edit, Device: 1, Changes: set("l00", "696", 0)},
			{Kind: sim.Collect, After: 51097073350292, Device: 1, Base: 2},
			{Kind: sim.Sync, After: 55763128204494, Device: 2, Base: 18},
			{Kind: sim.Edit, Device: 2, Changes: set("z08", "856", 0)},
			{Kind: sim.Sibling, Device: 1, Base: 1, Changes: set("z03", "880", 965)},
			{Kind: sim.Checkpoint, Device: 1, Base: 20},
		}}},
	})
}
