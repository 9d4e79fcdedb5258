package mem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return mem.New(mem.Options{Clock: mem.NewClock(start)}) },
		buckettest.Options{HoldsContent: true, LargeBytes: 16 << 20})
}

// TestConformanceThroughFaults checks that a Retry in front of a bucket that fails now and then,
// without ambiguity, is an honest bucket.
func TestConformanceThroughFaults(t *testing.T) {
	seed := uint64(0)
	buckettest.Run(t, func(*testing.T) bucket.Bucket {
		seed++
		clk := mem.NewAutoClock(start)
		b := mem.New(mem.Options{Clock: clk, Seed: seed, Faults: mem.Faults{CutBody: 0.1, SlowBody: 0.05}})
		return bucket.NewRetry(b, bucket.RetryOptions{Clock: clk})
	}, buckettest.Options{HoldsContent: true, LargeBytes: 2 << 20})
}

func put(b bucket.Bucket, name, content string) error {
	return b.PutIfAbsent(context.Background(), name, int64(len(content)), strings.NewReader(content))
}

func read(b bucket.Bucket, name string) (string, error) {
	o, err := b.Get(context.Background(), name, 0, -1)
	if err != nil {
		return "", err
	}
	got, err := io.ReadAll(o.Body)
	return string(got), errors.Join(err, o.Body.Close())
}

// TestEachFault lets each fault befall every request and looks what comes of it.
func TestEachFault(t *testing.T) {
	for _, c := range []struct {
		name      string
		faults    mem.Faults
		put, get  bucket.Class
		ambiguous bool
		stored    bool
	}{
		{"conflict", mem.Faults{Conflict: 1}, bucket.ClassBusy, bucket.ClassBusy, true, false},
		{"too many", mem.Faults{TooMany: 1}, bucket.ClassBusy, bucket.ClassBusy, true, false},
		{"unavailable", mem.Faults{Unavailable: 1}, bucket.ClassRetryable, bucket.ClassRetryable, true, false},
		{"refused", mem.Faults{Refused: 1}, bucket.ClassExists, bucket.ClassNotFound, false, false},
		{"lost answer", mem.Faults{LostAnswer: 1}, bucket.ClassRetryable, bucket.ClassOther, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := mem.New(mem.Options{Clock: mem.NewClock(start), Faults: c.faults})
			err := put(b, "a", "x")
			if bucket.ClassOf(err) != c.put || bucket.Ambiguous(err) != c.ambiguous || err == nil {
				t.Errorf("put: %v", err)
			}
			if _, err := read(b, "a"); bucket.ClassOf(err) != c.get {
				t.Errorf("get: %v", err)
			}
			if _, ok := b.Content("a"); ok != c.stored {
				t.Errorf("stored: %v", ok)
			}
		})
	}
}

func TestLostDeleteIsDone(t *testing.T) {
	b := mem.New(mem.Options{Clock: mem.NewClock(start)})
	b.Replace("a", []byte("x"))
	b.SetFaults(mem.Faults{LostAnswer: 1})
	if err := b.Delete(t.Context(), "a"); !bucket.Ambiguous(err) || len(b.Names()) != 0 {
		t.Errorf("%v, left %q", err, b.Names())
	}
}

func TestBodies(t *testing.T) {
	content := strings.Repeat("0123456789", 100)
	clk := mem.NewAutoClock(start)
	b := mem.New(mem.Options{Clock: clk, Seed: 3})
	b.Replace("a", []byte(content))

	b.SetFaults(mem.Faults{CutBody: 1})
	got, err := read(b, "a")
	if bucket.ClassOf(err) != bucket.ClassRetryable || len(got) >= len(content) || !strings.HasPrefix(content, got) {
		t.Errorf("cut: %d bytes, %v", len(got), err)
	}
	b.SetFaults(mem.Faults{WrongByte: 1})
	got, err = read(b, "a")
	differ := 0
	for i := range got {
		if got[i] != content[i] {
			differ++
		}
	}
	if err != nil || differ != 1 {
		t.Errorf("wrong byte: %d differ, %v", differ, err)
	}
	b.SetFaults(mem.Faults{SlowBody: 1, Delay: time.Minute})
	before := clk.Now()
	if got, err = read(b, "a"); err != nil || got != content || clk.Now().Sub(before) != 8*time.Minute {
		t.Errorf("slow: %d bytes, %v, after %s", len(got), err, clk.Now().Sub(before))
	}
	if kept, _ := b.Content("a"); string(kept) != content {
		t.Error("a fault of a body has changed the object")
	}
}

func TestSlowBodyObeysTheContext(t *testing.T) {
	b := mem.New(mem.Options{Clock: mem.NewClock(start), Faults: mem.Faults{SlowBody: 1}})
	b.Replace("a", []byte("content"))
	ctx, cancel := context.WithCancel(t.Context())
	o, err := b.Get(ctx, "a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(o.Body); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOneWriteASecond(t *testing.T) {
	clk := mem.NewClock(start)
	b := mem.New(mem.Options{Clock: clk, Faults: mem.Faults{WriteInterval: time.Second}})
	if err := put(b, "a", "x"); err != nil {
		t.Fatal(err)
	}
	if err := put(b, "b", "x"); err != nil {
		t.Fatal("another name:", err)
	}
	if err := b.Delete(t.Context(), "a"); bucket.ClassOf(err) != bucket.ClassBusy {
		t.Errorf("delete at once: %v", err)
	}
	clk.Advance(time.Second)
	if err := b.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := put(b, "a", "y"); bucket.ClassOf(err) != bucket.ClassBusy {
		t.Errorf("put at once: %v", err)
	}
	clk.Advance(999 * time.Millisecond)
	if err := put(b, "a", "y"); bucket.ClassOf(err) != bucket.ClassBusy {
		t.Errorf("put too soon: %v", err)
	}
	clk.Advance(time.Millisecond)
	if err := put(b, "a", "y"); err != nil {
		t.Error(err)
	}
}

func TestBefore(t *testing.T) {
	b := mem.New(mem.Options{Clock: mem.NewClock(start)})
	var seen []string
	fail := error(nil)
	b.SetBefore(func(op bucket.Op, name string) error {
		seen = append(seen, fmt.Sprint(op, " ", name))
		return fail
	})
	if err := put(b, "a", "x"); err != nil {
		t.Fatal(err)
	}
	fail = base.ErrNoSpace
	if err := put(b, "b", "x"); bucket.ClassOf(err) != bucket.ClassQuota || bucket.Ambiguous(err) {
		t.Error(err)
	}
	if _, err := b.List(t.Context(), "", "p", 1); !errors.Is(err, base.ErrNoSpace) {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"put a", "put b", "list p"}, seen); d != "" {
		t.Error(d)
	}
}

func TestEqualSeedsGiveEqualFaults(t *testing.T) {
	run := func(seed uint64) (s []string) {
		b := mem.New(mem.Options{Clock: mem.NewAutoClock(start), Seed: seed,
			Faults: mem.Faults{Conflict: 0.1, TooMany: 0.1, Unavailable: 0.1, LostAnswer: 0.1, CutBody: 0.1, WrongByte: 0.1, SlowBody: 0.1}})
		for i := range 100 {
			s = append(s, fmt.Sprint(put(b, fmt.Sprint(i%40), "content")))
			got, err := read(b, fmt.Sprint(i%7))
			s = append(s, fmt.Sprint(got, err))
		}
		return s
	}
	if d := cmp.Diff(run(7), run(7)); d != "" {
		t.Error(d)
	}
	if slices.Equal(run(7), run(8)) {
		t.Error("the seed changes nothing")
	}
}

func TestClock(t *testing.T) {
	c := mem.NewClock(start)
	soon, _ := c.After(time.Second)
	late, release := c.After(time.Hour)
	c.Advance(time.Second)
	select {
	case at := <-soon:
		if !at.Equal(start.Add(time.Second)) {
			t.Error(at)
		}
	default:
		t.Error("a timer that is due does not fire")
	}
	if release(); c.Timers() != 0 {
		t.Error("a released timer waits")
	}
	c.Advance(2 * time.Hour)
	select {
	case <-late:
		t.Error("a released timer fires")
	default:
	}
}

// TestAgainstModel lets rapid put, get, list, delete, roll back and wipe under faults, and compares
// with a map. What an ambiguous error leaves open is looked up.
func TestAgainstModel(t *testing.T) {
	names := []string{"a", "a/b", "a-", "b", "b/c/d", "c0"}
	rapid.Check(t, func(t *rapid.T) {
		clk := mem.NewAutoClock(start)
		p := rapid.SampledFrom([]float64{0, 0.1, 0.3})
		b := mem.New(mem.Options{Clock: clk, Seed: rapid.Uint64().Draw(t, "seed"), Faults: mem.Faults{
			Conflict: p.Draw(t, "conflict"), TooMany: p.Draw(t, "too many"), Unavailable: p.Draw(t, "unavailable"),
			LostAnswer: p.Draw(t, "lost"), CutBody: p.Draw(t, "cut"), SlowBody: p.Draw(t, "slow")}})
		model := map[string]string{}
		states, models := []mem.State{{}}, []map[string]string{{}}
		name := rapid.SampledFrom(names)
		look := func(n string) { // after an ambiguous answer
			if c, ok := b.Content(n); ok {
				model[n] = string(c)
			} else {
				delete(model, n)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n, content := name.Draw(t, "name"), rapid.StringN(0, 9, -1).Draw(t, "content")
				old, had := model[n]
				switch err := put(b, n, content); {
				case bucket.Ambiguous(err):
					if look(n); had && model[n] != old || !had && model[n] != content && model[n] != "" {
						t.Fatalf("%s holds %q", n, model[n])
					}
				case errors.Is(err, bucket.ErrExists) != had:
					t.Fatalf("put %s: %v, there: %v", n, err, had)
				case err == nil:
					model[n] = content
				}
			},
			"get": func(t *rapid.T) {
				n := name.Draw(t, "name")
				want, had := model[n]
				switch got, err := read(b, n); {
				case err == nil && (got != want || !had), errors.Is(err, base.ErrNotFound) && had, !strings.HasPrefix(want, got):
					t.Fatalf("get %s: %q, %v, want %q", n, got, err, want)
				}
			},
			"delete": func(t *rapid.T) {
				n := name.Draw(t, "name")
				if err := b.Delete(context.Background(), n); err == nil {
					delete(model, n)
				} else if bucket.Ambiguous(err) {
					look(n)
				} else {
					t.Fatal(err)
				}
			},
			"keep": func(*rapid.T) {
				m := map[string]string{}
				for k, v := range model {
					m[k] = v
				}
				states, models = append(states, b.State()), append(models, m)
			},
			"rollback": func(t *rapid.T) {
				i := rapid.IntRange(0, len(states)-1).Draw(t, "state")
				b.Rollback(states[i])
				clear(model)
				for k, v := range models[i] {
					model[k] = v
				}
			},
			"wipe": func(*rapid.T) {
				b.Wipe()
				clear(model)
			},
			"": func(t *rapid.T) {
				got := map[string]string{}
				for _, n := range b.Names() {
					c, _ := b.Content(n)
					got[n] = string(c)
				}
				if d := cmp.Diff(model, got); d != "" {
					t.Fatal(d)
				}
			},
		})
	})
}

func TestReplaceCopies(t *testing.T) {
	b := mem.New(mem.Options{Clock: mem.NewClock(start)})
	content := []byte("abc")
	b.Replace("a", content)
	content[0] = 'x'
	got, _ := b.Content("a")
	if got[1] = 'y'; !bytes.Equal(got, []byte("ayc")) {
		t.Error(string(got))
	}
	if again, _ := b.Content("a"); string(again) != "abc" {
		t.Error(string(again))
	}
}
