package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledger/cloudsync/mem"
)

// History says what happens in a world. It is data: equal histories give equal worlds.
type History struct {
	// Seed decides what the steps leave open: the noise in long values, what a crash tears, and the
	// order in which the world heals.
	Seed uint64
	// Devices are two or more.
	Devices []Device
	// Disagree lets the resolver of each device decide in its own way; otherwise all decide alike.
	Disagree bool
	// Gossip lets devices merge after each delivery while the world heals, instead of after all of
	// them.
	Gossip bool
	// Cold leaves the stores without a cache of nodes: they read again and again what they hold.
	Cold bool
	// Sweep lets the collector of the device that acts do a step after each step, and before the
	// first request of each call and those that append to the log.
	Sweep bool
	// Cloud, if it is not nil, lets devices exchange commits through a bucket. Then there are no
	// Deliver steps.
	Cloud *Cloud
	// Steps happen one after another.
	Steps []Step
}

// Cloud says what bucket the devices share.
type Cloud struct {
	// Plain leaves the bucket without a master key.
	Plain bool
	// Faults befall requests until the world heals. Which, follows from the seed, the device, and
	// the name of the object.
	Faults mem.Faults
}

// Device says how a device differs from the others.
type Device struct {
	// Name goes into its commits. Devices may share one, and it may be empty.
	Name string
	// Skew is how far its clock is ahead, until a Reset.
	Skew time.Duration
	// Table tells that the device cuts values in its own way, as before it joined a bucket.
	Table bool
}

// Step is one step of a device. Numbers that are too great are taken modulo what there is, so that
// a history stays one when steps are left out.
type Step struct {
	Kind Kind
	// After is the time that passes before the step.
	After time.Duration
	// Device acts; for a Deliver it receives.
	Device int
	// Peer is who gives, for a Deliver.
	Peer int
	// Changes are those of one transaction: Edit, Sibling and Crash.
	Changes []Change
	// Base says for a Sibling on which commit it is made: so many before the newest that the device
	// has received; for a Prune how many commits are kept; for others see their kinds.
	Base int
	// Heads chooses heads for Deliver and Merge, bit by bit in their order; 0: all of them.
	Heads uint64
	// Apart has Deliver hand over each commit in a batch of its own, Begin keep in memory what it
	// puts, and End give a transaction up.
	Apart bool
	// At says for a Crash, SyncCrash or SweepCrash after how many operations of the file system the
	// power fails.
	At int
	// Stop says for Sync, Reupload, Collect, Retain, GiveUp, Fetch, Build and Checkpoint at which
	// request the context of the call ends, and for a SyncCrash at which the power fails: before
	// the request is carried out, or, when Apart is set, after it. 0: at none.
	Stop int
}

// Kind says what a step does.
type Kind uint8

// The kinds of steps.
const (
	// Edit is a transaction on the newest head.
	Edit Kind = iota
	// Sibling is a transaction on an older commit.
	Sibling
	// Deliver copies heads of a peer, with all their ancestors that the device lacks: as sync does,
	// by their differences.
	Deliver
	// Merge merges heads.
	Merge
	// Reopen closes the page and opens it again.
	Reopen
	// Crash is an Edit during which the power fails. Its commit is there afterwards or is not.
	Crash
	// Sync syncs with the bucket.
	Sync
	// SyncCrash is a Sync during which the power fails.
	SyncCrash
	// Network takes the device's network away, or gives it back when Base is not 0.
	Network
	// Read reads the value of the key number Base of the newest head, and Fetch brings all values
	// here.
	Read
	Fetch
	// Drop takes from the device the pieces that the bucket has, but for some of them if Heads is
	// not 0.
	Drop
	// Evict removes the page from the device, if it is wholly in the bucket. It is opened empty.
	Evict
	// Build builds the tree of the commit so many before the newest received one, as Base says.
	Build
	// Tag gives the tag number Peer to the commit so many before the newest received one, as Base
	// says; a negative one removes the tag.
	Tag
	// Checkpoint writes a checkpoint, and Collect collects the garbage of the bucket.
	Checkpoint
	Collect
	// Retain sets for all devices that so many of the newest commits are kept as Base says, 0: all;
	// GiveUp takes from the device those that are not.
	Retain
	GiveUp
	// Backup copies the disk of the device; Restore gives the device the disk of the last backup of
	// Peer, or of the next device that has one: with a new key if Apart is set, and always
	// when it is another's.
	Backup
	Restore
	// Forget removes rows of what the device knows of the bucket: those that the bits of Heads
	// choose, in their order; 0: all of them.
	Forget
	// Keep remembers what the bucket holds, Rollback makes it hold that again, and Wipe empties it.
	// Processes begin anew then, unless Apart is set.
	Keep
	Rollback
	Wipe
	// Reupload makes the bucket whole again from what the device has.
	Reupload
	// Clone makes a new device from what the bucket has; it has the next number.
	Clone
	// Reset sets the clock of the device: it is then ahead by as many weeks as Base says.
	Reset
	// Lose takes an object of the log, a pack or a checkpoint out of the bucket: that with the
	// number Base.
	Lose
	// Sweep lets the collector do as many steps as Base says, and SweepCrash does so while the
	// power fails, after a Prune if Apart is set, and before a Compact if Heads is not 0.
	Sweep
	SweepCrash
	// Compact rewrites segments in which something is dead, or, if Apart is set, a half.
	Compact
	// Prune takes commits out of the history, except for so many of the newest as Base says, and
	// for what is unsynced, tagged, or needed to merge with any device.
	Prune
	// Pin takes a snapshot of the commit so many before the newest received one, as Base says;
	// Unpin reads the whole of the oldest snapshot and gives it up.
	Pin
	Unpin
	// Begin begins a transaction on the newest head, or goes on with one, and lets its pieces go to
	// the disk unless Apart is set; End makes its commit, or gives it up if Apart is set.
	Begin
	End
)

var kindNames = [...]string{"Edit", "Sibling", "Deliver", "Merge", "Reopen", "Crash", "Sync", "SyncCrash", "Network", "Read", "Fetch", "Drop", "Evict", "Build",
	"Tag", "Checkpoint", "Collect", "Retain", "GiveUp", "Backup", "Restore", "Forget", "Keep", "Rollback", "Wipe", "Reupload", "Clone", "Reset", "Lose", "Sweep", "SweepCrash", "Compact", "Prune", "Pin", "Unpin", "Begin", "End"}

// String returns the name of the constant.
func (k Kind) String() string { return kindNames[k] }

// Change changes one key. What the key's first letter means stands at Rules.
type Change struct {
	Op  Op
	Key string
	// Text is the value of Set, the number of Add and Raise, the element of Insert and Erase.
	Text string
	// Size, if it is greater, is the length to which Set fills the value up with noise that follows
	// from Text.
	Size int
}

// Op is what a change does.
type Op uint8

// The operations.
const (
	// Set gives the key a value.
	Set Op = iota
	// Remove removes the key.
	Remove
	// Add adds to the number that the key has.
	Add
	// Raise sets a number, unless the key has one as great.
	Raise
	// Insert and Erase change one element of the set that the key has.
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
