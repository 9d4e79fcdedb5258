package reclaim

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDamageIsToldOnce: a page of which the rows are damaged is looked at again after an hour, is
// told once, and is told no more once a collection has gone well.
func TestDamageIsToldOnce(t *testing.T) {
	ctx := t.Context()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	o := storage.Options{FS: vfs.NewMem(), Dir: "/page", MemoryIndex: index.NewMemory(), Clock: clock.System, Logger: logger}
	if err := storage.Create(ctx, o); err != nil {
		t.Fatal(err)
	}
	store, err := storage.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	damaged, told := error(&base.CorruptError{Where: "test"}), 0
	c := NewCollector(Page{Store: store, Clock: clock.System, Log: logger, Damaged: func(error) { told++ }, Collected: func(int, int64) {}})
	defer c.Close()
	for range 3 {
		c.failed(damaged)
		c.ended(c.mark(), damaged)
	}
	if g := c.Garbage(); !errors.Is(g.Err, base.ErrCorrupt) || g.Due || told != 1 || strings.Count(log.String(), "collected") != 1 {
		t.Errorf("%+v, told %d times:\n%s", g, told, log.String())
	}
	if err := c.All(ctx, nil); err != nil {
		t.Error(err)
	}
	if g := c.Garbage(); g.Err != nil || g.Due {
		t.Errorf("after a collection that went well: %+v", g)
	}
}

// TestQuota: what pages take beyond the bounds goes, closed pages first, then values.
func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		o            QuotaOptions
		noted, sizes int64 // of each of 3 pages
		canEvict     int64
		evict, drop  int64 // what is asked for; -1 not at all
		keep         int64
		err          error
	}{
		"none":                    {noted: 100, sizes: 100, evict: -1, drop: -1},
		"kept":                    {o: QuotaOptions{Bytes: 300}, noted: 100, sizes: 100, evict: -1, drop: -1},
		"exceeded":                {o: QuotaOptions{Bytes: 250}, noted: 100, sizes: 100, canEvict: 100, evict: 50, drop: -1},
		"noted without measure":   {o: QuotaOptions{Bytes: 300}, noted: math.MaxInt64 / 2, sizes: 100, evict: -1, drop: -1},
		"values when pages stay":  {o: QuotaOptions{Bytes: 250}, noted: 100, sizes: 100, canEvict: 20, evict: 50, drop: 30},
		"nothing may go":          {o: QuotaOptions{Bytes: 100}, noted: 100, sizes: 100, evict: 200, drop: 200, err: base.ErrNoSpace},
		"a disk that is too full": {o: QuotaOptions{Floor: 1040}, canEvict: 40, evict: 40, drop: -1},
		"values have a bound":     {o: QuotaOptions{Values: 7}, evict: -1, drop: 0, keep: 7},
	} {
		t.Run(name, func(t *testing.T) {
			evicted, dropped, kept := int64(-1), int64(-1), int64(0)
			o := c.o
			o.Free = func() (int64, error) { return 1000, nil }
			o.Pages = func() ([]base.Page, error) { return make([]base.Page, 3), nil }
			o.Noted = func(base.Page) (int64, error) { return c.noted, nil }
			o.Size = func(base.Page) (int64, error) { return c.sizes, nil }
			o.Evict = func(_ context.Context, bytes int64) (int64, int, string, error) {
				evicted = bytes
				return c.canEvict, 1, "it is open", nil
			}
			o.Drop = func(_ context.Context, bytes, keep int64) (int64, error) {
				dropped, kept = bytes, keep
				if c.err != nil {
					return 0, nil
				}
				return bytes, nil
			}
			if err := NewQuota(o).Keep(t.Context()); !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
			if evicted != c.evict || dropped != c.drop || kept != c.keep {
				t.Errorf("evicted %d, dropped %d, kept %d; want %d, %d, %d", evicted, dropped, kept, c.evict, c.drop, c.keep)
			}
		})
	}
}

// hasty is a clock whose timers fire at once. It tells how long they would have taken.
type hasty struct {
	clock.Clock
	asked chan time.Duration
}

func (h hasty) After(d time.Duration) (<-chan time.Time, func()) {
	h.asked <- d
	now := make(chan time.Time, 1)
	now <- time.Time{}
	return now, func() {}
}

// TestQuotaLooksAgain soon after bounds that could not be kept, since a page that was open may go
// then, and ever more rarely.
func TestQuotaLooksAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	c := hasty{clock.System, make(chan time.Duration)}
	q := NewQuota(QuotaOptions{Values: 1, Clock: c, Log: slog.New(slog.DiscardHandler), Drop: func(context.Context, int64, int64) (int64, error) {
		if looks++; looks == 3 { // the page may go
			return 0, nil
		}
		return 0, base.ErrNoSpace
	}})
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx) }()
	for i, want := range []time.Duration{quotaAgain, 2 * quotaAgain, quotaEvery, quotaAgain} {
		if got := <-c.asked; got != want {
			t.Errorf("look %d is followed by one after %s, want %s", i+1, got, want)
		}
	}
	cancel()
	for running := true; running; {
		select {
		case <-c.asked:
		case <-done:
			running = false
		}
	}
}
