package background_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// History says what happens. Equal histories give equal worlds.
type History struct {
	Seed           uint64
	Devices, Pages int
	Limited        bool // requests by the second
	Steps          []Step
}

// Step is one thing that happens, after some time.
type Step struct {
	Kind         Kind
	After        time.Duration
	Device, Page int
	N            int
}

// Kind says what a step does.
type Kind uint8

// The kinds of steps.
const (
	Edit    Kind = iota // a commit of a short value, or of a long one if N is not 0
	Sync                // somebody calls Sync
	Wait                // somebody waits for the newest commit
	Leave               // all who have called leave
	Pause               // background sync of the device is paused
	Resume              // and goes on
	Close               // a page is closed, and opened at once
	Restart             // the process ends, and begins anew
	Kill                // the process is killed; what the disk has of what is not durable follows from N
	Offline             // the device has no network
	Online              //
	Hang                // requests of the device get no answer
	Answer              //
	Deny                // the device may not write
	Allow               //
	Full                // the bucket is full
	Room                //
	Faulty              // requests fail now and then
	Fine                //
	kinds
)

var kindNames = [...]string{"Edit", "Sync", "Wait", "Leave", "Pause", "Resume", "Close", "Restart", "Kill", "Offline", "Online", "Hang", "Answer", "Deny", "Allow", "Full", "Room",
	"Faulty", "Fine"}

// String returns the name of the constant.
func (k Kind) String() string { return kindNames[k] }

// String returns the history as text.
func (h History) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d devices, %d pages, limited: %t\n", h.Seed, h.Devices, h.Pages, h.Limited)
	for i, s := range h.Steps {
		fmt.Fprintf(&b, "\t%d: after %v %v device %d page %d n %d\n", i, s.After, s.Kind, s.Device, s.Page, s.N)
	}
	return b.String()
}

// generate returns the history of a seed.
func generate(seed uint64, steps int) History {
	rng := rand.New(rand.NewPCG(seed, 0xbac))
	one := func(n int) bool { return rng.IntN(n) == 0 }
	h := History{Seed: seed, Devices: 2 + rng.IntN(3), Pages: 1 + rng.IntN(4), Limited: one(6)}
	kindsOf := []Kind{Edit, Edit, Edit, Edit, Sync, Wait}
	for _, group := range [][]Kind{{Pause, Resume}, {Leave, Leave}, {Close}, {Restart}, {Kill}, {Offline, Online}, {Hang, Answer}, {Deny, Allow}, {Full, Room}, {Faulty, Fine}} {
		if !one(2) {
			kindsOf = append(kindsOf, group...)
		}
	}
	pace := []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 10 * time.Second, 10 * time.Minute}[rng.IntN(4)]
	for range steps {
		s := Step{Kind: kindsOf[rng.IntN(len(kindsOf))], Device: rng.IntN(h.Devices), Page: rng.IntN(h.Pages), N: rng.IntN(8), After: time.Duration(rng.Int64N(int64(pace)))}
		switch {
		case one(12):
			s.After = time.Duration(rng.Int64N(int64(2 * time.Hour)))
		case one(60):
			s.After = time.Duration(rng.Int64N(int64(26 * time.Hour)))
		}
		h.Steps = append(h.Steps, s)
	}
	return h
}

// minimise leaves steps out as long as the history fails, asking at most limit times.
func minimise(h History, limit int, fails func(History) bool) History {
	for less := true; less; {
		less = false
		for size := max(len(h.Steps)/2, 1); size > 0; size /= 2 {
			for at := 0; at < len(h.Steps) && limit > 0; {
				limit--
				shorter := h
				shorter.Steps = slices.Delete(slices.Clone(h.Steps), at, min(at+size, len(h.Steps)))
				if fails(shorter) {
					h, less = shorter, true
				} else {
					at += size
				}
			}
		}
	}
	return h
}
