package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledger/cloudsync/mem"
)

// History determines all events of a world. It is data: equal histories give equal worlds.
type History struct {
	// Seed decides everything not given by the steps: the noise in long values, the effect of
	// crashes, and the order of healing.
	Seed uint64
	// Devices has two or more elements.
	Devices []Device
	// Disagree gives the resolver of each device its own opinion; otherwise all decide alike.
	Disagree bool
	// Gossip makes devices merge after each delivery during healing, instead of after all
	// deliveries.
	Gossip bool
	// Cold disables the node cache of the stores, so that they read nodes again and again.
	Cold bool
	// Sweep runs a step of the acting device's collector after each step, before the first request
	// of each call, and before requests that append to the log.
	Sweep bool
	// Cloud, if not nil, is the bucket through which devices exchange commits. There are no Deliver
	// steps then.
	Cloud *Cloud
	// Steps run in sequence.
	Steps []Step
}

// Cloud configures the shared bucket.
type Cloud struct {
	// Plain leaves the bucket without a master key.
	Plain bool
	// Faults affect requests until the world heals. The seed, the device and the name of the object
	// determine which requests.
	Faults mem.Faults
}

// Device holds the properties in which devices differ.
type Device struct {
	// Name is recorded in its commits. Several devices may have the same name, and it may be empty.
	Name string
	// Skew is how far its clock is ahead, until a Reset.
	Skew time.Duration
	// Table makes the device cut values in its own way, as before it joined a bucket.
	Table bool
}

// Step is one step of a device. A number that is too great counts modulo the available range, so
// that a history stays valid without some of its steps.
type Step struct {
	Kind Kind
	// After is the time that passes before the step.
	After time.Duration
	// Device acts; in a Deliver it receives.
	Device int
	// Peer is the sender in a Deliver.
	Peer int
	// Changes are the changes of one transaction: Edit, Sibling and Crash.
	Changes []Change
	// Base selects the parent for a Sibling: the commit that many before the newest received one.
	// For a Prune it is the number of commits to keep; for others see their kinds.
	Base int
	// Heads selects heads for Deliver and Merge, one bit for each in order; 0: all.
	Heads uint64
	// Apart makes Deliver submit each commit in its own batch, Begin keep its puts in memory, and
	// End give up a transaction.
	Apart bool
	// At is the number of file system operations before the power fails, in a Crash, SyncCrash or
	// SweepCrash.
	At int
	// Stop is the request at which the context of the call ends, for Sync, Reupload, Collect,
	// Retain, GiveUp, Fetch, Build and Checkpoint. For a SyncCrash the power fails at this request:
	// before it is carried out, or after it when Apart is set. 0: no request.
	Stop int
}

// Kind is the kind of a step.
type Kind uint8

// The kinds of steps.
const (
	// Edit is a transaction on the newest head.
	Edit Kind = iota
	// Sibling is a transaction on an older commit.
	Sibling
	// Deliver copies heads of a peer, with all their ancestors that the device lacks. It copies
	// differences, as sync does.
	Deliver
	// Merge merges heads.
	Merge
	// Reopen closes the page and opens it again.
	Reopen
	// Crash is an Edit during which the power fails. Its commit may exist afterwards or not.
	Crash
	// Sync syncs with the bucket.
	Sync
	// SyncCrash is a Sync during which the power fails.
	SyncCrash
	// Network disconnects the device from the network, or reconnects it when Base is not 0.
	Network
	// Read reads the value of key number Base in the newest head. Fetch fetches all values.
	Read
	Fetch
	// Drop drops the pieces of the device that the bucket has, or only some of them if Heads is not
	// 0.
	Drop
	// Evict evicts the page, if the bucket has all of it. The page is then opened empty.
	Evict
	// Build builds the tree of the commit Base before the newest received one.
	Build
	// Tag puts tag number Peer on the commit Base before the newest received one. A negative Base
	// removes the tag.
	Tag
	// Checkpoint writes a checkpoint, and Collect collects the garbage of the bucket.
	Checkpoint
	Collect
	// Retain sets, for all devices, that the Base newest commits are kept; 0: all. GiveUp gives up
	// the others on the device.
	Retain
	GiveUp
	// Backup copies the disk of the device. Restore replaces the disk of the device by the last
	// backup of Peer, or of the next device that has one. It gets a new key if Apart is set, and
	// always when the backup is from another device.
	Backup
	Restore
	// Forget removes rows with the device's state of the bucket: those selected by the bits of
	// Heads, in order; 0: all.
	Forget
	// Keep saves the content of the bucket, Rollback restores it, and Wipe empties the bucket.
	// Processes then restart, unless Apart is set.
	Keep
	Rollback
	Wipe
	// Reupload repairs the bucket from the device.
	Reupload
	// Clone makes a new device from the bucket; it has the next number.
	Clone
	// Reset sets the clock of the device, which is then Base weeks ahead.
	Reset
	// Lose removes object number Base of the log, packs and checkpoints from the bucket.
	Lose
	// Sweep runs Base steps of the collector. SweepCrash does so until the power fails, after a
	// Prune if Apart is set, and before a Compact if Heads is not 0.
	Sweep
	SweepCrash
	// Compact rewrites segments that contain dead data, or, if Apart is set, at least half.
	Compact
	// Prune removes commits from the history, except the Base newest ones and those that are
	// unsynced, tagged, or needed to merge with any device.
	Prune
	// Pin takes a snapshot of the commit Base before the newest received one. Unpin reads the whole
	// oldest snapshot and closes it.
	Pin
	Unpin
	// Begin begins a transaction on the newest head, or continues one. It writes its pieces to disk
	// early unless Apart is set. End commits it, or gives it up if Apart is set.
	Begin
	End
)

var kindNames = [...]string{"Edit", "Sibling", "Deliver", "Merge", "Reopen", "Crash", "Sync", "SyncCrash", "Network", "Read", "Fetch", "Drop", "Evict", "Build",
	"Tag", "Checkpoint", "Collect", "Retain", "GiveUp", "Backup", "Restore", "Forget", "Keep", "Rollback", "Wipe", "Reupload", "Clone", "Reset", "Lose", "Sweep", "SweepCrash", "Compact", "Prune", "Pin", "Unpin", "Begin", "End"}

// String returns the name of the constant.
func (k Kind) String() string { return kindNames[k] }

// Change changes one key. Rules explains the first letter of a key.
type Change struct {
	Op  Op
	Key string
	// Text is the value of Set, the number of Add and Raise, the element of Insert and Erase.
	Text string
	// Size, if greater, is the length to which Set pads the value with noise derived from Text.
	Size int
}

// Op is the operation of a change.
type Op uint8

// The operations.
const (
	// Set gives the key a value.
	Set Op = iota
	// Remove removes the key.
	Remove
	// Add adds to the number in the key.
	Add
	// Raise sets a number, unless the present one is as great.
	Raise
	// Insert and Erase change one element of the set in the key.
	Insert
	Erase
)

var opNames = [...]string{"Set", "Remove", "Add", "Raise", "Insert", "Erase"}

// String returns the name of the constant.
func (o Op) String() string { return opNames[o] }

// GoString returns the history as a Go expression, for a test of a package that imports sim.
func (h History) GoString() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sim.History{\n\tSeed: %d,\n", h.Seed)
	if h.Disagree {
		b.WriteString("\tDisagree: true,\n")
	}
	if h.Gossip {
		b.WriteString("\tGossip: true,\n")
	}
	if h.Cold {
		b.WriteString("\tCold: true,\n")
	}
	if h.Sweep {
		b.WriteString("\tSweep: true,\n")
	}
	if c := h.Cloud; c != nil {
		fmt.Fprintf(&b, "\tCloud: &sim.Cloud{Plain: %t, Faults: %#v},\n", c.Plain, c.Faults)
	}
	b.WriteString("\tDevices: []sim.Device{\n")
	for _, d := range h.Devices {
		fmt.Fprintf(&b, "\t\t{Name: %q, Skew: %d, Table: %t},\n", d.Name, int64(d.Skew), d.Table)
	}
	b.WriteString("\t},\n\tSteps: []sim.Step{\n")
	for _, s := range h.Steps {
		fmt.Fprintf(&b, "\t\t%s,\n", s.fields())
	}
	b.WriteString("\t},\n}")
	return b.String()
}

func (s Step) fields() string {
	f := []string{"Kind: sim." + s.Kind.String()}
	add := func(name string, zero bool, v any) {
		if !zero {
			f = append(f, fmt.Sprintf("%s: %v", name, v))
		}
	}
	add("After", s.After == 0, int64(s.After))
	add("Device", s.Device == 0, s.Device)
	add("Peer", s.Peer == 0, s.Peer)
	add("Base", s.Base == 0, s.Base)
	add("Heads", s.Heads == 0, s.Heads)
	add("Apart", !s.Apart, s.Apart)
	add("At", s.At == 0, s.At)
	add("Stop", s.Stop == 0, s.Stop)
	var changes []string
	for _, c := range s.Changes {
		t := fmt.Sprintf("{Op: sim.%s, Key: %q", c.Op, c.Key)
		if c.Text != "" {
			t += fmt.Sprintf(", Text: %q", c.Text)
		}
		if c.Size != 0 {
			t += fmt.Sprintf(", Size: %d", c.Size)
		}
		changes = append(changes, t+"}")
	}
	if len(changes) > 0 {
		f = append(f, "Changes: []sim.Change{"+strings.Join(changes, ", ")+"}")
	}
	return "{" + strings.Join(f, ", ") + "}"
}
