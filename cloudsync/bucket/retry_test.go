package bucket_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

// TestRetryTable fails every request with one class and looks how often, and after which waits, it
// is made again.
func TestRetryTable(t *testing.T) {
	ms := func(waits ...int) (d []time.Duration) {
		for _, w := range waits {
			d = append(d, time.Duration(w)*time.Millisecond)
		}
		return d
	}
	for class, waits := range map[bucket.Class][]time.Duration{
		bucket.ClassBusy:      ms(500, 1000, 2000, 4000, 8000, 16000, 30000),
		bucket.ClassRetryable: ms(200, 400, 800, 1600, 3200),
		bucket.ClassCorrupt:   ms(200),
		bucket.ClassOther:     nil, bucket.ClassNotFound: nil, bucket.ClassExists: nil, bucket.ClassDenied: nil, bucket.ClassQuota: nil,
		bucket.ClassInvalid: nil, bucket.ClassCanceled: nil, bucket.Class(99): nil,
	} {
		for name, call := range map[string]func(bucket.Bucket) error{
			"put":    func(b bucket.Bucket) error { return put(b, "a", "x") },
			"get":    func(b bucket.Bucket) error { _, err := read(b, "a", 0, -1); return err },
			"list":   func(b bucket.Bucket) error { _, err := b.List(context.Background(), "", "", 1); return err },
			"delete": func(b bucket.Bucket) error { return b.Delete(context.Background(), "a") },
		} {
			for _, jitter := range []float64{0, 0.5, 0.999999} {
				clk := mem.NewAutoClock(start)
				b, tries := mem.New(mem.Options{Clock: clk}), 0
				b.SetBefore(func(op bucket.Op, name string) error {
					tries++
					return &bucket.Error{Op: op, Name: name, Class: class}
				})
				var waited []time.Duration
				r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk, Jitter: func() float64 { return jitter },
					OnRetry: func(_ error, d time.Duration) { waited = append(waited, d) }})
				if err := call(r); bucket.ClassOf(err) != class {
					t.Errorf("%s, %s: %v", name, class, err)
				}
				if tries != len(waits)+1 || len(waited) != len(waits) {
					t.Fatalf("%s, %s: %d tries, %d waits, want %d waits", name, class, tries, len(waited), len(waits))
				}
				var total time.Duration
				for i, d := range waited {
					total += d
					if want := waits[i]/2 + time.Duration(jitter*float64(waits[i]/2)); (d - want).Abs() > time.Microsecond {
						t.Errorf("%s, %s: wait %d is %s, want %s", name, class, i, d, want)
					}
				}
				if clk.Now().Sub(start) != total {
					t.Errorf("%s, %s: waited %s, said %s", name, class, clk.Now().Sub(start), total)
				}
			}
		}
	}
}

func TestRetryJitterOfTheSystem(t *testing.T) {
	clk := mem.NewAutoClock(start)
	b := mem.New(mem.Options{Clock: clk, Faults: mem.Faults{TooMany: 1}})
	seen := map[time.Duration]bool{}
	r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk, OnRetry: func(_ error, d time.Duration) { seen[d] = true }})
	for range 5 {
		if err := put(r, "a", "x"); bucket.ClassOf(err) != bucket.ClassBusy {
			t.Fatal(err)
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d different waits of 35", len(seen))
	}
}

func TestRetrySucceedsLater(t *testing.T) {
	clk := mem.NewAutoClock(start)
	b, n := mem.New(mem.Options{Clock: clk}), 0
	b.SetBefore(func(bucket.Op, string) error {
		if n++; n%4 != 0 {
			return base.ErrNetwork
		}
		return nil
	})
	r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk})
	content := strings.NewReader("skipped content")
	content.Seek(8, io.SeekStart)
	if err := r.PutIfAbsent(t.Context(), "a", 7, content); err != nil {
		t.Fatal(err)
	}
	if got, err := read(r, "a", 0, -1); got != "content" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if infos, err := r.List(t.Context(), "", "", 9); len(infos) != 1 || err != nil {
		t.Errorf("%v, %v", infos, err)
	}
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if n != 16 {
		t.Errorf("%d requests", n)
	}
}

// TestRetryReadsContentAnew loses the first answer after the content was read.
func TestRetryReadsContentAnew(t *testing.T) {
	clk := mem.NewAutoClock(start)
	b := mem.New(mem.Options{Clock: clk, Faults: mem.Faults{LostAnswer: 1}})
	r := bucket.NewRetry(&forgetful{Bucket: b}, bucket.RetryOptions{Clock: clk, OnRetry: func(error, time.Duration) { b.SetFaults(mem.Faults{}) }})
	if err := put(r, "a", "content"); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.Content("a"); string(got) != "content" {
		t.Errorf("stored %q", got)
	}
}

// forgetful loses what was stored with an ambiguous answer.
type forgetful struct{ *mem.Bucket }

func (f *forgetful) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	err := f.Bucket.PutIfAbsent(ctx, name, size, content)
	if bucket.Ambiguous(err) {
		f.Bucket.Wipe()
	}
	return err
}

func TestRetryMarksWhatMayBeItsOwn(t *testing.T) {
	for _, c := range []struct {
		name      string
		before    func(b *mem.Bucket) // the first try
		ambiguous bool
	}{
		{"lost answer", func(b *mem.Bucket) { b.SetFaults(mem.Faults{LostAnswer: 1}) }, true},
		{"busy", func(b *mem.Bucket) { b.SetFaults(mem.Faults{TooMany: 1}) }, true},
		{"unavailable", func(b *mem.Bucket) { b.SetFaults(mem.Faults{Unavailable: 1}) }, true},
		{"not sent", func(b *mem.Bucket) { b.SetBefore(func(bucket.Op, string) error { return base.ErrNetwork }) }, false},
		{"taken before", func(b *mem.Bucket) { b.Replace("a", []byte("another's")) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			clk := mem.NewAutoClock(start)
			b := mem.New(mem.Options{Clock: clk})
			c.before(b)
			r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk, OnRetry: func(error, time.Duration) {
				b.SetFaults(mem.Faults{})
				b.SetBefore(nil)
				if len(b.Names()) == 0 {
					b.Replace("a", []byte("another's"))
				}
			}})
			err := put(r, "a", "mine")
			if !errors.Is(err, bucket.ErrExists) || bucket.ClassOf(err) != bucket.ClassExists || bucket.Ambiguous(err) != c.ambiguous {
				t.Errorf("%v, ambiguous %v", err, bucket.Ambiguous(err))
			}
		})
	}
}

// TestRetryKeepsTheMarkOfAnEarlierTry ends an ambiguous try with what needs the user.
func TestRetryKeepsTheMarkOfAnEarlierTry(t *testing.T) {
	clk := mem.NewAutoClock(start)
	b := mem.New(mem.Options{Clock: clk, Faults: mem.Faults{LostAnswer: 1}})
	r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk, OnRetry: func(error, time.Duration) {
		b.SetBefore(func(bucket.Op, string) error { return os.ErrPermission })
	}})
	if err := put(r, "a", "x"); bucket.ClassOf(err) != bucket.ClassDenied || !bucket.Ambiguous(err) {
		t.Error(err)
	}
}

func TestRetryDoesNotRepeatWhatCannotBeReadAnew(t *testing.T) {
	pr, pw, err := os.Pipe() // a Seeker that cannot seek
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	pw.Close()
	for name, content := range map[string]io.Reader{"reader": io.LimitReader(strings.NewReader("x"), 1), "pipe": pr} {
		clk := mem.NewAutoClock(start)
		b, tries := mem.New(mem.Options{Clock: clk}), 0
		b.SetBefore(func(bucket.Op, string) error { tries++; return base.ErrNetwork })
		r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk})
		if err := r.PutIfAbsent(t.Context(), "a", 1, content); !errors.Is(err, base.ErrNetwork) || tries != 1 {
			t.Errorf("%s: %d tries, %v", name, tries, err)
		}
	}
}

func TestRetryObeysTheContextWhileItWaits(t *testing.T) {
	clk := mem.NewClock(start) // nobody moves it: a wait would last for ever
	b := mem.New(mem.Options{Clock: clk, Faults: mem.Faults{LostAnswer: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk, OnRetry: func(error, time.Duration) { cancel() }})
	err := r.PutIfAbsent(ctx, "a", 1, strings.NewReader("x"))
	if bucket.ClassOf(err) != bucket.ClassCanceled || !errors.Is(err, context.Canceled) || !bucket.Ambiguous(err) {
		t.Errorf("%v", err)
	}
	if clk.Timers() != 0 {
		t.Error("a timer is left")
	}
}

func TestRetryGoesOnWithinABody(t *testing.T) {
	content := strings.Repeat("0123456789", 5000)
	for seed := range uint64(50) {
		clk := mem.NewAutoClock(start)
		b := mem.New(mem.Options{Clock: clk, Seed: seed, Faults: mem.Faults{CutBody: 0.7, Unavailable: 0.2}})
		b.Replace("a", []byte(content))
		m := bucket.NewMeter(b, bucket.MeterOptions{})
		r := bucket.NewRetry(m, bucket.RetryOptions{Clock: clk})
		got, err := read(r, "a", 3, 40_000)
		switch {
		case err != nil && bucket.ClassOf(err) != bucket.ClassRetryable, !strings.HasPrefix(content[3:40_003], got), err == nil && len(got) != 40_000:
			t.Fatalf("seed %d: %d bytes, %v", seed, len(got), err)
		case m.Counts().Down != int64(len(got)):
			t.Fatalf("seed %d: read %d bytes to give %d", seed, m.Counts().Down, len(got))
		}
	}
}

func TestRetryGivesUpOnABodyWithoutProgress(t *testing.T) {
	clk := mem.NewAutoClock(start)
	b, gets := mem.New(mem.Options{Clock: clk}), 0
	b.Replace("a", []byte("x")) // of one byte none comes when it is cut
	b.SetFaults(mem.Faults{CutBody: 1})
	b.SetBefore(func(bucket.Op, string) error { gets++; return nil })
	r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk})
	if got, err := read(r, "a", 0, -1); got != "" || bucket.ClassOf(err) != bucket.ClassRetryable || gets != 6 {
		t.Errorf("%q, %v, %d gets", got, err, gets)
	}
}

// TestRetryCountsTriesFromTheLastByte cuts every body, each time after some bytes: that goes on for
// more than six tries.
func TestRetryCountsTriesFromTheLastByte(t *testing.T) {
	content := strings.Repeat("0123456789", 100_000)
	for seed := range uint64(5) {
		clk := mem.NewAutoClock(start)
		b, gets := mem.New(mem.Options{Clock: clk, Seed: seed, Faults: mem.Faults{CutBody: 1}}), 0
		b.Replace("a", []byte(content))
		b.SetBefore(func(bucket.Op, string) error { gets++; return nil })
		got, err := read(bucket.NewRetry(b, bucket.RetryOptions{Clock: clk}), "a", 0, -1)
		if bucket.ClassOf(err) != bucket.ClassRetryable || !strings.HasPrefix(content, got) || len(got) < 999_000 || gets < 10 {
			t.Errorf("seed %d: %d bytes, %d gets, %v", seed, len(got), gets, err)
		}
	}
}

func TestRetryNoticesThatTheObjectIsAnother(t *testing.T) {
	clk := mem.NewAutoClock(start)
	b := mem.New(mem.Options{Clock: clk, Seed: 5, Faults: mem.Faults{CutBody: 1}})
	b.Replace("a", []byte(strings.Repeat("a", 1000)))
	r := bucket.NewRetry(b, bucket.RetryOptions{Clock: clk, OnRetry: func(error, time.Duration) {
		b.Replace("a", []byte(strings.Repeat("b", 1001)))
	}})
	got, err := read(r, "a", 0, -1)
	if !errors.Is(err, base.ErrCorrupt) || strings.Contains(got, "b") {
		t.Errorf("%v", err)
	}
}

func TestRetriedBodyIsClosedOnce(t *testing.T) {
	r := bucket.NewRetry(newMem(), bucket.RetryOptions{})
	if err := put(r, "a", "content"); err != nil {
		t.Fatal(err)
	}
	o, err := r.Get(t.Context(), "a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.Body.Close(), o.Body.Close()); err != nil {
		t.Error(err)
	}
	if _, err := o.Body.Read(make([]byte, 1)); !errors.Is(err, base.ErrClosed) {
		t.Error(err)
	}
}

func TestRetryIsABucket(t *testing.T) {
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return bucket.NewRetry(newMem(), bucket.RetryOptions{}) },
		buckettest.Options{HoldsContent: true, LargeBytes: 2 << 20})
}

func TestRuleWaits(t *testing.T) {
	var waits []time.Duration
	for i := range 6 {
		waits = append(waits, bucket.Rule{Tries: 6, First: time.Second, Most: 5 * time.Second}.Wait(i+1))
	}
	if want := []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9, 5e9}; !slices.Equal(waits, want) {
		t.Errorf("%v", waits)
	}
}
