package cloudlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// writer is a device that wants things to be in the log. Each is a tag of its own, in one body at a
// time.
type writer struct {
	*device
	want     []string // not settled, in order
	body     *format.SealedBody
	synced   map[string]bool
	gone     map[format.ID]bool // packs that are condemned
	pack     format.ID          // what the body relies on
	stopped  error
	restarts int
}

// history is one run: devices and what happened.
type history struct {
	*cloud
	writers []*writer
	trace   strings.Builder
	harm    bool // the bucket was rolled back, wiped or changed
	wrong   bool // bytes are changed on the way
}

func newHistory(t testing.TB, seed uint64, n int) *history {
	h := &history{cloud: newCloud(t, seed)}
	for range n {
		w := &writer{synced: map[string]bool{}, gone: map[format.ID]bool{}, pack: format.ID{'p'}}
		w.device = h.device(format.Position{})
		h.writers = append(h.writers, w)
	}
	return h
}

// apply and settle keep what the device wants in step with what is durable.
func (w *writer) applyEntries(ctx context.Context, entries []*format.Entry, at format.Position) error {
	if err := w.apply(ctx, entries, at); err != nil {
		return err
	}
	for _, e := range entries {
		w.learn(e)
	}
	return nil
}

func (w *writer) settleEntry(ctx context.Context, a cloudlog.Appended, e *format.Entry) error {
	if err := w.settle(ctx, a, e); err != nil {
		return err
	}
	w.learn(e)
	return nil
}

func (w *writer) learn(e *format.Entry) {
	for _, tag := range e.Body.Tags {
		w.synced[tag.Name] = true
	}
	w.want = slices.DeleteFunc(w.want, func(s string) bool { return w.synced[s] })
	if e.Body.Condemned != nil {
		for _, id := range e.Body.Condemned.Packs {
			w.gone[id] = true
		}
	}
}

// push appends what is wanted, once.
func (w *writer) push(condemn bool) error {
	if w.body == nil || condemn {
		if len(w.want) == 0 && !condemn {
			return nil
		}
		if w.gone[w.pack] {
			w.pack = w.cloud.id('p')
		}
		w.body = w.device.body(func(b *format.Body) {
			b.Tags = nil
			for _, name := range w.want {
				b.Tags = append(b.Tags, format.TagChange{Name: name, Removed: true})
			}
			if condemn {
				b.Condemned = &format.Condemnation{Packs: []format.ID{w.pack}}
			} else {
				b.Relies = []format.ID{w.pack}
			}
		})
	}
	_, err := w.Append(w.t.Context(), w.body, w.applyEntries, w.settleEntry)
	if err == nil || errors.Is(err, cloudlog.ErrRemake) {
		w.body = nil
		return nil
	}
	return err
}

// restart loses what is not durable.
func (w *writer) restart() {
	applied, skew := w.applied, w.skew
	f, seen := w.Floor()
	id := w.id
	w.device = w.cloud.device(w.at, func(o *cloudlog.Options) { o.Floor, o.FloorSeen = f, seen })
	w.applied, w.skew, w.id, w.body = applied, skew, id, nil
	w.restarts++
}

// act lets one device do one thing. A stopped one does nothing any more.
func (h *history) act(i, what, tag int) {
	w := h.writers[i]
	if w.stopped != nil {
		return
	}
	var err error
	switch {
	case what < 5:
		w.want = append(w.want, fmt.Sprintf("%d-%d", i, tag))
		err = w.push(false)
	case what < 8:
		_, err = w.CatchUp(h.t.Context(), what == 7, w.applyEntries)
	case what == 8:
		w.restart()
	case what == 9:
		err = w.push(true)
	case what == 10:
		w.fail = errTest
		err = w.push(false)
		w.fail = nil
	case what == 11:
		h.clock.Advance(3 * time.Hour)
	default:
		err = w.Verify(h.t.Context())
	}
	fmt.Fprintf(&h.trace, "%d/%d: %v at %v\n", i, what, err, w.at)
	switch {
	case err == nil, errors.Is(err, errTest), errors.Is(err, base.ErrNetwork), h.wrong && damaged(err):
	case h.harm:
		w.stopped = err
	default:
		h.t.Fatalf("device %d, action %d: %v", i, what, err)
	}
}

// settleAll lets everybody push and read without faults, until nothing changes.
func (h *history) settleAll() {
	h.bucket.SetFaults(mem.Faults{})
	for range 4 {
		for i, w := range h.writers {
			for n := 0; len(w.want) > 0 || w.body != nil; n++ {
				if err := w.push(false); err != nil || n > 10 {
					h.t.Fatalf("device %d, without faults: %v", i, err)
				}
			}
			if _, err := w.CatchUp(h.t.Context(), false, w.applyEntries); err != nil {
				h.t.Fatalf("device %d, without faults: %v", i, err)
			}
		}
	}
}

// check asserts that all have read the same log, which has everything once and breaks no
// condemnation.
func (h *history) check() {
	first := h.writers[0]
	for i, w := range h.writers {
		if w.at != first.at || w.Position() != w.at || len(w.applied) != len(first.applied) {
			h.t.Fatalf("device %d is at %v with %d entries, device 0 at %v with %d", i, w.at, len(w.applied), first.at, len(first.applied))
		}
		for k, e := range w.applied {
			if other := first.applied[k]; e.Hash != other.Hash || e.ID != other.ID {
				h.t.Fatalf("device %d has applied %s as entry %d, device 0 %s", i, e.ID, e.Number, other.ID)
			}
		}
	}
	gone, ids, tags := map[format.ID]uint64{}, map[format.ID]bool{}, map[string]bool{}
	for _, e := range first.applied {
		if ids[e.ID] {
			h.t.Fatalf("body %s is in the log twice", e.ID)
		}
		ids[e.ID] = true
		for _, tag := range e.Body.Tags {
			if tags[tag.Name] {
				h.t.Fatalf("%s is in the log twice", tag.Name)
			}
			tags[tag.Name] = true
		}
		for _, id := range e.Body.Relies {
			if n := gone[id]; n != 0 {
				h.t.Fatalf("entry %d relies on pack %s, which entry %d condemned", e.Number, id, n)
			}
		}
		if e.Body.Condemned != nil {
			for _, id := range e.Body.Condemned.Packs {
				gone[id] = e.Number
			}
		}
	}
	for _, w := range h.writers {
		for tag := range w.synced {
			if !tags[tag] {
				h.t.Fatalf("%s counts, and is not in the log", tag)
			}
		}
	}
}

// play runs a history and returns its trace with the names of all objects at the end.
func play(t testing.TB, seed uint64, devices int, faults mem.Faults, actions []uint32, harm int) (*history, string) {
	h := newHistory(t, seed, devices)
	h.bucket.SetFaults(faults)
	h.wrong = faults.WrongByte > 0
	states := []mem.State{{}}
	for n, a := range actions {
		if harm > 0 && n == len(actions)/2 {
			h.harm = true
			h.do(harm, states)
		}
		if n%5 == 0 {
			states = append(states, h.bucket.State())
		}
		h.act(int(a>>8)%devices, int(a&0xff)%14, n)
	}
	if !h.harm {
		h.settleAll()
		h.check()
	}
	return h, h.trace.String() + strings.Join(h.bucket.Names(), "\n")
}

// do does harm to the bucket.
func (h *history) do(harm int, states []mem.State) {
	switch names := h.bucket.Names(); harm {
	case 1:
		h.bucket.Rollback(states[len(states)/2])
	case 2:
		h.bucket.Wipe()
	default:
		for _, name := range names[len(names)/2:] {
			h.flip(name)
		}
	}
}

func drawFaults(t *rapid.T) mem.Faults {
	some := func(name string) float64 { return rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, name) }
	return mem.Faults{Conflict: some("409"), TooMany: some("429"), Unavailable: some("5xx"), Refused: some("412"), LostAnswer: some("lost"), CutBody: some("cut"),
		WrongByte:     rapid.SampledFrom([]float64{0, 0, 0.1}).Draw(t, "wrong"),
		WriteInterval: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "interval")}
}

func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seed, devices := rapid.Uint64().Draw(r, "seed"), rapid.IntRange(2, 4).Draw(r, "devices")
		actions := rapid.SliceOfN(rapid.Uint32(), 1, 60).Draw(r, "actions")
		faults := drawFaults(r)
		_, one := play(fatal{t, r}, seed, devices, faults, actions, 0)
		if _, two := play(fatal{t, r}, seed, devices, faults, actions, 0); one != two {
			r.Fatalf("two runs differ:\n%s\n\n%s", one, two)
		}
	})
}

// TestRandomHarm lets the bucket be rolled back, wiped or damaged in the middle. That is never
// taken for good: what is applied is a chain, which the devices check with each entry, and each
// device that is behind the harm comes to know of it.
func TestRandomHarm(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seed, devices := rapid.Uint64().Draw(r, "seed"), rapid.IntRange(2, 4).Draw(r, "devices")
		actions := rapid.SliceOfN(rapid.Uint32(), 10, 60).Draw(r, "actions")
		h, _ := play(fatal{t, r}, seed, devices, drawFaults(r), actions, rapid.IntRange(1, 3).Draw(r, "harm"))
		h.bucket.SetFaults(mem.Faults{})
		for i, w := range h.writers {
			err := w.Verify(t.Context())
			stored, there := h.bucket.Content(h.names.Entry(max(w.at.Number, 1)))
			there = w.at.Number == 0 || there && holds(h, w.at, stored)
			if there != (err == nil) {
				r.Fatalf("device %d: the entry at %v is there: %t; %v", i, w.at, there, err)
			}
			if err != nil && !errors.Is(err, base.ErrConflict) && !damaged(err) {
				r.Fatalf("device %d: %v", i, err)
			}
		}
	})
}

func damaged(err error) bool {
	return errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) || errors.Is(err, seal.ErrUnknownKey)
}

func holds(h *history, at format.Position, stored []byte) bool {
	_, hash, err := format.OpenHeader(h.sealer, h.names, at.Number, stored)
	return err == nil && hash == at.Hash
}

// fatal is the test of a rapid check: what the helpers find fails the check, so that it is made
// smaller.
type fatal struct {
	testing.TB
	r *rapid.T
}

func (f fatal) Helper()                      { f.r.Helper() }
func (f fatal) Fatal(args ...any)            { f.r.Fatal(args...) }
func (f fatal) Fatalf(s string, args ...any) { f.r.Fatalf(s, args...) }
func (f fatal) Errorf(s string, args ...any) { f.r.Errorf(s, args...) }
