package bucket_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

func TestProbeAcceptsTheHonest(t *testing.T) {
	b := newMem()
	m := bucket.NewMeter(b, bucket.MeterOptions{})
	points, err := bucket.Probe(t.Context(), m, "")
	if err != nil || len(points) < 30 {
		t.Fatalf("%v, %d points", err, len(points))
	}
	if left := b.Names(); len(left) != 0 {
		t.Errorf("left %q", left)
	}
	if c := m.Counts(); c.A > 80 || c.B > 40 || c.Up+c.Down > 2<<20 {
		t.Errorf("took %+v", c)
	}
}

func TestProbeCatchesLiars(t *testing.T) {
	for _, l := range buckettest.Liars() {
		t.Run(l.Name, func(t *testing.T) {
			b := newMem()
			points, err := bucket.Probe(t.Context(), l.Wrap(b), "p")
			if err == nil {
				t.Fatalf("believed, at %d points", len(points))
			}
			failed := 0
			for _, p := range points {
				if p.Err != nil {
					failed++
				}
			}
			unfit, ok := errors.AsType[*bucket.UnfitError](err)
			if !ok || failed == 0 || len(unfit.Points) != failed || !errors.Is(err, base.ErrUnsupported) || strings.ContainsRune(err.Error(), '\n') {
				t.Error(err)
			}
			for _, target := range []error{base.ErrCorrupt, base.ErrNotFound, base.ErrConflict, base.ErrNetwork, base.ErrInvalid} {
				if errors.Is(err, target) {
					t.Errorf("%v matches %v", err, target)
				}
			}
			if left := b.Names(); len(left) != 0 && l.Name != "does not delete" {
				t.Errorf("left %q", left)
			}
		})
	}
}

// TestProbeStandsTrouble lets requests fail as they do: behind a Retry the bucket is honest, and
// nobody is called a liar.
func TestProbeStandsTrouble(t *testing.T) {
	for seed := range uint64(20) {
		clk := mem.NewAutoClock(start)
		b := mem.New(mem.Options{Clock: clk, Seed: seed, Faults: mem.Faults{SlowBody: 0.2, CutBody: 0.02, WriteInterval: 1}})
		b.SetBefore(everyFifthGet())
		if _, err := bucket.Probe(t.Context(), bucket.NewRetry(b, bucket.RetryOptions{Clock: clk}), "p"); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func everyFifthGet() func(bucket.Op, string) error {
	n := 0
	var mu sync.Mutex
	return func(op bucket.Op, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if n++; op == bucket.OpGet && n%5 == 0 {
			return base.ErrNetwork
		}
		return nil
	}
}

// TestProbeTellsTroubleFromLies ends the network, the rights or the context at each request: that
// is an error, not a failed point, and what was stored is removed when it can be.
func TestProbeTellsTroubleFromLies(t *testing.T) {
	for _, cause := range []error{base.ErrNetwork, base.ErrNoSpace, context.Canceled} {
		for at := 1; ; at++ {
			b, n := newMem(), 0
			var mu sync.Mutex
			ctx, cancel := context.WithCancel(t.Context())
			b.SetBefore(func(op bucket.Op, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				if n++; n != at || op == bucket.OpDelete {
					return nil
				}
				if cause == context.Canceled {
					cancel()
				}
				return cause
			})
			points, err := bucket.Probe(ctx, b, "p")
			cancel()
			if slices.ContainsFunc(points, func(p bucket.ProbePoint) bool { return p.Err != nil }) {
				t.Fatalf("%v at request %d: called a liar: %v", cause, at, points)
			}
			if left := b.Names(); len(left) != 0 {
				t.Fatalf("%v at request %d: left %q", cause, at, left)
			}
			if n < at {
				break // none failed
			}
			if err != nil && !errors.Is(err, cause) {
				t.Fatalf("%v at request %d: %v", cause, at, err)
			}
		}
	}
}

// TestProbeOfNoBucket: where there is no bucket, or no right to anything, the first request that
// says so ends the probe, and the error says it once.
func TestProbeOfNoBucket(t *testing.T) {
	for _, class := range []bucket.Class{bucket.ClassNotFound, bucket.ClassDenied} {
		b := newMem()
		b.SetBefore(func(op bucket.Op, name string) error {
			return &bucket.Error{Op: op, Name: name, Class: class, Err: errors.New("the store says no")}
		})
		_, err := bucket.Probe(t.Context(), b, "p")
		if bucket.ClassOf(err) != class || strings.Count(err.Error(), "the store says no") != 1 {
			t.Errorf("%s: %v", class, err)
		}
	}
}

func TestProbeRefusesABadPrefix(t *testing.T) {
	if _, err := bucket.Probe(t.Context(), newMem(), "../x"); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
}
