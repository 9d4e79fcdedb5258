package sim_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledger/integration/sim"
)

// set is one change.
func set(key, text string, size int) []sim.Change {
	return []sim.Change{{Op: sim.Set, Key: key, Text: text, Size: size}}
}

// TestKnownHistories runs histories that have failed once, cut down to what mattered. Seeds alone would not do: what a seed gives changes with the generator.
func TestKnownHistories(t *testing.T) {
	one, two := []sim.Device{{Name: "a"}}, []sim.Device{{Name: "a"}, {Name: "b"}}
	away := []sim.Device{{Name: "a"}, {Name: "b", Skew: -90537091774899492}, {Name: "e", Skew: -9762839336154098}}
	three := []sim.Device{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	four := append(three, sim.Device{Name: "d"})
	for _, test := range []struct {
		name string
		h    sim.History
	}{
		{"a lazy value comes back with chunks that the checkpoint of a clone did not need", sim.History{Devices: one, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("z01", "2", 92160)},
			{Kind: sim.Edit, Changes: set("l00", "1", 92160)},
			{Kind: sim.Edit, Changes: set("l02", "0", 92160)},
			{Kind: sim.Edit, Changes: set("l00", "2", 0)},
			{Kind: sim.Sync},
			{Kind: sim.Edit, Changes: set("z01", "1", 30720)},
		}}},
		{"a commit on an old one is sent when history above that one could have been pruned", sim.History{Sweep: true, Devices: one, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l01", "h", 0)},
			{Kind: sim.Edit, Changes: set("l00", "h", 0)},
			{Kind: sim.Edit, Changes: set("l02", "1", 0)},
			{Kind: sim.Sync},
			{Kind: sim.Edit, Changes: set("l30", "1", 0)},
			{Kind: sim.Sibling, Base: 3, Changes: set("l01", "e", 0)},
			{Kind: sim.Merge},
			{Kind: sim.Prune, Base: 2},
		}}},
		{"who wrote last is asked where pruned history begins", sim.History{Sweep: true, Devices: two, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l01", "24", 0)},
			{Kind: sim.Edit, Changes: set("l01", "41", 300)},
			{Kind: sim.Sync},
			{Kind: sim.Edit, Device: 1, Changes: set("l00", "88", 0)},
			{Kind: sim.Edit, Changes: set("l00", "104", 555)},
			{Kind: sim.Edit, Device: 1, Changes: set("l01", "144", 0)},
			{Kind: sim.Sync, Device: 1},
			{Kind: sim.Sync},
			{Kind: sim.Prune, Device: 1, Base: 2},
			{Kind: sim.Edit, Device: 1, Changes: set("l00", "264", 1962)},
		}}},
		{"a merge needs a tree that went with the bucket", sim.History{Gossip: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Keep},
			{Kind: sim.Edit, Device: 2, Changes: set("l01", "40", 592)},
			{Kind: sim.Edit, Device: 2, Changes: set("l04", "51", 3093)},
			{Kind: sim.Checkpoint, Device: 2},
			{Kind: sim.Checkpoint, Device: 1},
			{Kind: sim.Rollback},
			{Kind: sim.Edit, After: time.Second, Changes: set("l04", "160", 0)},
			{Kind: sim.Reupload, Device: 1},
			{Kind: sim.Reupload, Device: 2},
			{Kind: sim.Sync},
		}}},
		{"the log loses the entry with whose checkpoint all begin", sim.History{Devices: two, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 1, Changes: set("m19", "0", 0)},
			{Kind: sim.Checkpoint, Device: 1},
			{Kind: sim.Lose, Base: 1},
		}}},
		{"the log loses its only entry, and who has made it says no word", sim.History{Sweep: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 1, Changes: set("l00", "j", 0)},
			{Kind: sim.Sync, Device: 1},
			{Kind: sim.Lose},
			{Kind: sim.SyncCrash, Device: 1, At: 11},
		}}},
		{"a bucket is rolled back, and a process that goes on puts an entry above a hole", sim.History{Devices: two, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l00", "1", 0)},
			{Kind: sim.Sync},
			{Kind: sim.Keep},
			{Kind: sim.Edit, Changes: set("l01", "1", 0)},
			{Kind: sim.Sync},
			{Kind: sim.Rollback, Apart: true},
			{Kind: sim.Edit, Changes: set("l02", "1", 0)},
			{Kind: sim.Sync},
			{Kind: sim.Sync, Device: 1},
		}}},
		{"a bucket is put back that has lost a pack and no entry", sim.History{Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l02", "0", 1108)},
			{Kind: sim.Collect},
			{Kind: sim.Keep},
			{Kind: sim.Checkpoint, Device: 1},
			{Kind: sim.Rollback},
		}}},
		{"pieces have moved to another pack when they are fetched", sim.History{Sweep: true, Devices: []sim.Device{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "f"}}, Steps: []sim.Step{
			{Kind: sim.Sync},
			{Kind: sim.Edit, Device: 2, Changes: set("z08", "1", 393693)},
			{Kind: sim.Collect, Device: 2},
			{Kind: sim.Collect, Device: 3},
			{Kind: sim.Edit, Changes: set("z00", "16002", 0)},
			{Kind: sim.Checkpoint},
			{Kind: sim.Edit, Changes: set("z00", "16008", 530632)},
			{Kind: sim.Collect, After: 2 * 24 * time.Hour},
			{Kind: sim.Collect, After: 31 * 24 * time.Hour, Device: 1},
			{Kind: sim.Fetch, Device: 3},
		}}},
		{"a device that was away builds on what was given up", sim.History{Devices: away, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("r01", "0", 0)},
			{Kind: sim.Edit, Device: 1, Changes: []sim.Change{{Op: sim.Add, Key: "c03", Text: "2"}}},
			{Kind: sim.Retain, Device: 2, Base: 1},
			{Kind: sim.Sync, Base: 1},
			{Kind: sim.Edit, Device: 2, Changes: []sim.Change{{Op: sim.Insert, Key: "s06", Text: "b"}}},
			{Kind: sim.Checkpoint, Device: 1, Base: 28},
			{Kind: sim.Collect, After: 766476698773544, Device: 2, Base: 21},
			{Kind: sim.Edit, After: 1556702183339501, Changes: set("l08", "0", 0)},
			{Kind: sim.Collect, After: 1487958643777151, Device: 1, Base: 21},
		}}},
		{"a device that was away sends again what was given up", sim.History{Devices: away, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("r01", "0", 0)},
			{Kind: sim.Edit, Device: 2, Changes: set("l08", "0", 0)},
			{Kind: sim.Edit, Device: 1, Changes: []sim.Change{{Op: sim.Add, Key: "c03", Text: "2"}}},
			{Kind: sim.Retain, Device: 2, Base: 1},
			{Kind: sim.Sync, Base: 1},
			{Kind: sim.Edit, Device: 2, Changes: []sim.Change{{Op: sim.Insert, Key: "s06", Text: "b"}}},
			{Kind: sim.Checkpoint, Device: 1, Base: 28},
			{Kind: sim.Collect, After: 766476698773544, Device: 2, Base: 21},
			{Kind: sim.Edit, After: 1134879756425688, Device: 2, Changes: set("l04", "0", 300)},
			{Kind: sim.Collect, After: 1487958643777151, Device: 1, Base: 21},
		}}},
		{"a bucket that lacks nothing is uploaded anew by who has trees of history without values", sim.History{Gossip: true, Sweep: true, Devices: two, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 1, Changes: set("l03", "2", 1981)},
			{Kind: sim.Edit, Changes: set("l00", "2", 1588)},
			{Kind: sim.Edit, Changes: []sim.Change{{Op: sim.Set, Key: "l03", Text: "0"}, {Op: sim.Set, Key: "l00", Text: "1", Size: 300}}},
			{Kind: sim.Checkpoint},
			{Kind: sim.Sync, Device: 1},
			{Kind: sim.Reupload, Device: 1},
		}}},
		{"a bucket is wiped that alone has the commits of an evicted page", sim.History{Devices: two, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 1, Changes: set("l00", "d", 0)},
			{Kind: sim.Sync, Device: 1},
			{Kind: sim.Evict, Device: 1},
			{Kind: sim.Wipe},
		}}},
		{"a commit is given up that a transaction elsewhere is built on, and comes to a clone without its tree", sim.History{Sweep: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 2, Changes: set("f02", "2", 0)},
			{Kind: sim.Retain, Device: 1, Base: 3},
			{Kind: sim.Sync, Device: 2},
			{Kind: sim.Edit, Changes: set("f00", "1", 0)},
			{Kind: sim.Edit, Changes: set("f02", "1", 0)},
			{Kind: sim.Collect},
			{Kind: sim.Begin, Device: 2, Changes: set("f00", "1", 0)},
			{Kind: sim.Collect, After: 31 * 24 * time.Hour, Device: 1},
			{Kind: sim.Checkpoint, Device: 2},
		}}},
		{"a commit is tagged that others have given up, and comes to a clone", sim.History{Gossip: true, Sweep: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 2, Changes: set("m02", "49", 0)},
			{Kind: sim.Sync, Device: 2},
			{Kind: sim.Edit, Changes: set("r00", "72", 0)},
			{Kind: sim.Retain, Base: 4},
			{Kind: sim.Edit, Changes: set("m02", "16000", 0)},
			{Kind: sim.Edit, Changes: set("m02", "16008", 0)},
			{Kind: sim.Edit, Changes: set("f01", "16016", 0)},
			{Kind: sim.Edit, Changes: set("r00", "16024", 0)},
			{Kind: sim.Collect},
			{Kind: sim.Tag, Device: 2},
			{Kind: sim.Checkpoint, Device: 1},
		}}},
		{"an entry needs what was dropped, and its pack is deleted", sim.History{Gossip: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 1, Changes: set("l02", "1", 1124)},
			{Kind: sim.Sync},
			{Kind: sim.Collect, Device: 1},
			{Kind: sim.Edit, Changes: set("l16", "1", 79253)},
			{Kind: sim.Checkpoint, Device: 2},
			{Kind: sim.Checkpoint},
			{Kind: sim.Checkpoint},
			{Kind: sim.Collect, After: 2 * 24 * time.Hour},
			{Kind: sim.Collect, After: 31 * 24 * time.Hour, Device: 1},
			{Kind: sim.Drop, Device: 2},
		}}},
		{"a chunk is collected with its place, and comes back in a lazy value", sim.History{Sweep: true, Devices: two, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l00", "2", 92160)},
			{Kind: sim.Edit, Device: 1, Changes: set("l00", "0", 500)},
			{Kind: sim.Edit, Device: 1, Changes: set("z01", "0", 3000)},
			{Kind: sim.Edit, Changes: set("l00", "0", 3000)},
			{Kind: sim.Sync},
			{Kind: sim.Edit, Changes: set("z01", "2", 47693)},
			{Kind: sim.Sync, Device: 1},
			{Kind: sim.Sync},
			{Kind: sim.Prune, Device: 1, Base: 1},
			{Kind: sim.Sweep, Device: 1, Base: 12},
		}}},
		{"an entry is put behind one that is lost, whose place is filled", sim.History{Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l00", "0", 321)},
			{Kind: sim.Edit, Device: 1, Changes: set("z01", "2", 1216)},
			{Kind: sim.Sync, Device: 1},
			{Kind: sim.Sync, Device: 2},
			{Kind: sim.Lose, Base: 94},
			{Kind: sim.Reupload},
			{Kind: sim.Edit, Device: 1, Changes: set("l03", "2", 0)},
			{Kind: sim.Sync, Device: 1},
			{Kind: sim.Checkpoint, Device: 2},
		}}},
		{"a commit is kept among pruned ones since it was tagged once", sim.History{Sweep: true, Devices: one, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l00", "1", 500)},
			{Kind: sim.Edit, Changes: set("z01", "0", 3000)},
			{Kind: sim.Edit, Changes: set("z01", "2", 30720)},
			{Kind: sim.Edit, Changes: set("l00", "0", 3000)},
			{Kind: sim.Tag, Peer: 1, Base: 0},
			{Kind: sim.Tag, Peer: 1, Base: 1},
			{Kind: sim.Edit, Changes: set("z01", "1", 3000)},
			{Kind: sim.Edit, Changes: set("l00", "2", 3000)},
			{Kind: sim.Edit, Changes: set("l02", "1", 92160)},
			{Kind: sim.Edit, Changes: set("l00", "2", 92160)},
			{Kind: sim.Sync},
			{Kind: sim.Prune, Base: 3},
			{Kind: sim.Edit, Changes: set("z01", "0", 92160)},
		}}},
		{"the wiped bucket of a device that keeps little gets the rest of what others have", sim.History{Gossip: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l01", "8224", 0)},
			{Kind: sim.Edit, Changes: set("l01", "8232", 0)},
			{Kind: sim.Edit, Changes: set("l01", "8241", 0)},
			{Kind: sim.Edit, Changes: set("l07", "8257", 0)},
			{Kind: sim.Sync},
			{Kind: sim.Retain, Device: 2, Base: 4},
			{Kind: sim.Edit, Device: 2, Changes: set("l10", "83", 0)},
			{Kind: sim.Collect, Device: 2, Base: 17},
			{Kind: sim.Wipe, Device: 2},
		}}},
		{"the log begins anew with less than others have", sim.History{Disagree: true, Devices: four, Steps: []sim.Step{
			{Kind: sim.Keep, Device: 1},
			{Kind: sim.Edit, Device: 2, Changes: set("m00", "64", 0)},
			{Kind: sim.Rollback, Device: 2},
			{Kind: sim.Edit, Changes: set("z02", "16000", 25921)},
			{Kind: sim.Edit, Changes: set("z02", "16009", 0)},
			{Kind: sim.Edit, Changes: set("z02", "16016", 2997)},
			{Kind: sim.Collect},
			{Kind: sim.Retain, Device: 2, Base: 3},
			{Kind: sim.Collect, Device: 3, Base: 13},
			{Kind: sim.Edit, Changes: set("z02", "121", 0)},
		}}},
		{"what was given up is sent again behind a hole", sim.History{Gossip: true, Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 1, Changes: set("l06", "40", 3055)},
			{Kind: sim.Retain, Base: 1},
			{Kind: sim.Checkpoint, Device: 1},
			{Kind: sim.Edit, Changes: set("l11", "16016", 0)},
			{Kind: sim.Checkpoint},
			{Kind: sim.Edit, Device: 2, Changes: set("l02", "96", 1712)},
			{Kind: sim.Collect, Device: 2, Base: 26},
			{Kind: sim.Edit, Changes: set("l07", "121", 0)},
			{Kind: sim.Sync, Base: 19},
			{Kind: sim.Lose, Device: 2, Base: 88},
		}}},
		{"what was given up is sent again to a bucket that was put back", sim.History{Devices: four, Steps: []sim.Step{
			{Kind: sim.Edit, Changes: set("l18", "16", 0)},
			{Kind: sim.Edit, Changes: set("z02", "40", 0)},
			{Kind: sim.Retain, Device: 1, Base: 3},
			{Kind: sim.Edit, Changes: set("m03", "56", 0)},
			{Kind: sim.Sync, Base: 25},
			{Kind: sim.Keep, Device: 3},
			{Kind: sim.Rollback},
			{Kind: sim.Edit, Device: 1, Changes: []sim.Change{{Op: sim.Insert, Key: "s00", Text: "k"}}},
			{Kind: sim.Edit, Device: 2, Changes: set("m15", "178", 0)},
			{Kind: sim.Collect, Device: 1, Base: 27},
		}}},
		{"a bucket is put back to what has been given up since", sim.History{Devices: three, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 2, Changes: set("z02", "8", 0)},
			{Kind: sim.Sync, Device: 2, Base: 4},
			{Kind: sim.Keep, Device: 2},
			{Kind: sim.Edit, Device: 1, Changes: set("z03", "72", 0)},
			{Kind: sim.Sync, Base: 3},
			{Kind: sim.Edit, Changes: []sim.Change{{Op: sim.Remove, Key: "z02"}}},
			{Kind: sim.Edit, Changes: set("z11", "16024", 0)},
			{Kind: sim.Retain, Base: 2},
			{Kind: sim.Collect, Device: 1},
			{Kind: sim.Rollback, Device: 2},
			{Kind: sim.Reupload, Device: 1, Base: 27},
		}}},
		{"a bucket is put back to what was given up before a device came", sim.History{Devices: four, Steps: []sim.Step{
			{Kind: sim.Edit, Device: 1, Changes: set("z03", "24", 3238)},
			{Kind: sim.Retain, Device: 1, Base: 3},
			{Kind: sim.Edit, Device: 1, Changes: set("z03", "80", 0)},
			{Kind: sim.Keep},
			{Kind: sim.Edit, Changes: set("z06", "16016", 0)},
			{Kind: sim.Checkpoint},
			{Kind: sim.Edit, Changes: set("z00", "16027", 2151)},
			{Kind: sim.Checkpoint, Device: 1},
			{Kind: sim.Collect},
			{Kind: sim.Retain, Device: 3, Base: 2},
			{Kind: sim.Rollback, Device: 3},
		}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := test.h
			h.Cloud = &sim.Cloud{Plain: true}
			for h.Seed = 1; h.Seed <= 3; h.Seed++ {
				if _, err := sim.Run(t.Context(), h, sim.Options{Check: true}); err != nil {
					t.Errorf("seed %d: %v", h.Seed, err)
				}
			}
		})
	}
}
