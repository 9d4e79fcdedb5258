package reclaim

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/layout"
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

// host returns a repository on a disk with 1000 bytes free.
func host(fs vfs.FS, c clock.Clock) *Host {
	return &Host{
		Disk: layout.Dir{FS: fs, Path: "/repository"}, Clock: c, Log: slog.New(slog.DiscardHandler),
		Free: func() (int64, error) { return 1000, nil },
	}
}

// TestQuotaOfTheDisk: without pages nothing can be freed of a disk that is too full.
func TestQuotaOfTheDisk(t *testing.T) {
	for floor, want := range map[int64]error{0: nil, 900: nil, 1040: base.ErrNoSpace} {
		h := host(vfs.NewMem(), clock.System)
		if err := NewQuota(h, Limits{Floor: floor}).Keep(t.Context()); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("floor %d: %v, want %v", floor, err, want)
		}
		h.Free = func() (int64, error) { return 0, ErrUnknown }
		if err := NewQuota(h, Limits{Floor: floor}).Keep(t.Context()); err != nil {
			t.Errorf("floor %d, and it is not known what is free: %v", floor, err)
		}
	}
}

// moody is a file system that lists its directories only the third time.
type moody struct {
	vfs.FS
	looks int
}

func (m *moody) ReadDir(string) ([]vfs.Info, error) {
	if m.looks++; m.looks == 3 {
		return nil, nil
	}
	return nil, base.ErrNoSpace
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
	c := hasty{clock.System, make(chan time.Duration)}
	q := NewQuota(host(&moody{FS: vfs.NewMem()}, c), Limits{Values: 1})
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
