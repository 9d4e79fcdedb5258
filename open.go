package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/checkup"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/gate"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/pageusage"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// recencyPieces is the number of value pieces whose last read is recorded: about 1 GiB of values,
// in 512 KiB of memory.
const recencyPieces = 1 << 16

// funcClock is the machine's clock with another source for the current time.
type funcClock struct {
	clock.Clock
	now func() time.Time
}

func (c funcClock) Now() time.Time { return c.now() }

// machine holds the file system, clock and timing of a repository.
type machine struct {
	fs     vfs.FS
	clock  clock.Clock
	stall  time.Duration // bucket timeout without progress, up to twice this; 0: none
	jitter func() uint64 // random bits for the pauses between background merges
}

// machineOf returns the machine that options ask for.
func machineOf(o *Options) machine {
	m := machine{fs: vfs.OS, clock: clock.System, stall: bucket.DefaultStall, jitter: rand.Uint64}
	if o.InMemory {
		m.fs = vfs.NewMem()
	}
	if o.Now != nil {
		m.clock = funcClock{m.clock, o.Now}
	}
	return m
}

// Open opens the repository in dir, and creates it when it is absent. o may be nil.
//
// One opener at a time may write. While another opener, possibly in this process, holds the
// repository, Open waits Options.LockTimeout and then fails with a *LockedError that names the
// holder's process. ctx bounds only this wait; the Repository outlives it. The caller must call
// Close.
//
// A repository with a cloud opens even if the cloud is unreachable or its key missing; see Cloud.
//
// Errors: ErrLocked, ErrNoRepository (with MustExist or ReadOnly), ErrUnsupported (a newer format,
// or no opener for the scheme of Options.Cloud), ErrConflict (the URL of Options.Cloud differs from
// that of the stored cloud), ErrCorrupt, ErrInvalid, ErrTooLarge, those of ctx and of the file
// system.
func Open(ctx context.Context, dir string, o *Options) (*Repository, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open repository: %w", err)
	}
	complete := o.withDefaults()
	return openOn(ctx, machineOf(&complete), dir, complete)
}

// openOn opens a repository with options whose defaults are filled in.
func openOn(ctx context.Context, m machine, dir string, o Options) (*Repository, error) {
	r := &Repository{
		machine: m, o: o, gate: gate.New(),
		indexes: map[pageKey]*index.Memory{}, listed: make(chan struct{}),
	}
	r.rules.Other = r.o.otherRules
	var err error
	r.cache, r.recency = storage.NewNodeCache(r.o.CacheBytes), storage.NewRecency(recencyPieces)
	if !r.o.InMemory {
		if dir == "" {
			return nil, fmt.Errorf("open repository: the directory has no name: %w", ErrInvalid)
		}
		r.dir = dir
	}
	r.disk = layout.Dir{FS: r.fs, Path: cmp.Or(r.dir, "/repository")}
	if !r.o.InMemory {
		r.reserve = storage.NewReserve(r.fs, r.disk.File(layout.ReserveName))
	}
	r.pages = newPages(r)
	if r.cloud, err = newCloud(r); err != nil {
		return nil, fmt.Errorf("open repository: %w", err)
	}
	r.keeper = newKeeper(r)
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open repository %s: %w", dir, err), r.release())
	}
	r.keeper.Start(r.gate.Life())
	if !r.o.ReadOnly {
		r.background.Go(func() { r.quota.Run(r.gate.Life()) })
	}
	if !r.o.ReadOnly && !r.o.Collection.Off {
		r.background.Go(func() { r.collecting().Run(r.gate.Life()) })
	}
	return r, nil
}

// tighten removes other users' access to the directory. A failure is only logged: the files
// themselves are private.
func (r *Repository) tighten() {
	had, err := layout.Tighten(r.dir)
	switch {
	case err != nil:
		r.o.Logger.Warn("the directory is open to others", "directory", r.dir, "mode", had, "error", err)
	case had != 0:
		r.o.Logger.Warn("the directory was open to others, and is private now", "directory", r.dir, "mode", had)
	}
}

func (r *Repository) open(ctx context.Context) error {
	create := !r.o.ReadOnly && !r.o.MustExist
	i, err := r.disk.ReadIdentity() // before the lock, which makes the directory
	if err == nil && i == nil && !create {
		err = ErrNoRepository
	}
	if err != nil && !(r.o.Mend && errors.Is(err, ErrCorrupt)) {
		return err
	}
	usageDir := ""
	if !r.o.InMemory {
		if !r.o.ReadOnly {
			if err := r.fs.MkdirAll(r.dir); err != nil {
				return err
			}
		}
		l, err := layout.TakeLock(ctx, r.dir, r.o.ReadOnly, r.o.LockTimeout)
		if err != nil {
			return err
		}
		r.lock = l
		if !r.o.ReadOnly {
			r.tighten()
		}
		usageDir = r.disk.File(layout.UsageName)
	}
	i, err = r.disk.ReadIdentity() // while this opener waited, another one may have changed it
	switch {
	case errors.Is(err, ErrCorrupt) && r.o.Mend:
		mended := checkup.ProblemOfFile(layout.IdentityName, err)
		mended.Repaired = true
		r.mended = &mended
		i = layout.NewIdentity()
		err = r.disk.WriteIdentity(i)
	case err == nil && i == nil && create:
		i, err = r.disk.CreateIdentity()
	case err == nil && i == nil:
		err = ErrNoRepository
	case err == nil && !r.o.ReadOnly:
		err = r.disk.SettleIdentity()
	}
	if err != nil {
		return err
	}
	r.identity.Store(i)
	r.table.Store(split.NewTable(i.Secret[:]))
	if !r.o.ReadOnly {
		if err := r.disk.RemoveLeftovers(); err != nil {
			return err
		}
	}
	if err := r.openUsage(usageDir); err != nil {
		return err
	}
	r.space = newSpace(r)
	r.quota = reclaim.NewQuota(r.space, reclaim.Limits{Bytes: r.o.Quota, Floor: r.o.FreeSpaceFloor, Values: r.o.ValueBytes})
	return r.cloud.Open(ctx)
}

// openUsage opens the page usage in dir.
func (r *Repository) openUsage(dir string) error {
	u, rec, err := pageusage.Open(dir, pageusage.Options{Now: r.clock.Now(), ReadOnly: r.o.ReadOnly, Exist: r.disk.Pages})
	r.usage = u
	if rec.Damage != nil {
		r.o.Logger.Warn("page usage is damaged and is begun anew", "error", rec.Damage, "savedAs", rec.SavedAs)
	}
	return err
}

// release releases the resources that open acquired.
func (r *Repository) release() error {
	var err error
	if r.usage != nil {
		err = r.usage.Close()
	}
	return errors.Join(err, r.lock.Release())
}

// Close closes all pages, waits for running calls, rolls open transactions back, and releases the
// lock. A bucket that does not answer delays it by two seconds at most. Close is idempotent: later
// calls return the first result. It closes transactions and snapshots that are still open and
// reports their number in the error, since an unclosed one is a defect of the caller.
func (r *Repository) Close() error {
	r.once.Do(func() { r.closeErr = r.close() })
	return r.closeErr
}

func (r *Repository) close() error {
	r.gate.Close()
	r.background.Wait()
	r.keeper.Wait()
	var sum session.Leaks
	var errs []error
	err := r.cloud.Close(func() {
		for _, p := range r.pages.AllHandles() {
			l, err := p.close()
			sum.Add(l)
			errs = append(errs, err)
		}
		r.pages.Wait()
	})
	errs = append(errs, err, sum.Err(), r.release())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close repository: %w", err)
	}
	return nil
}

// newPages returns the pages of r.
func newPages(r *Repository) *openPages {
	return presence.New(presence.Host[*pageStore, *Page]{
		Dir: r.disk, Logger: r.o.Logger, Fill: r.fillPage, Enroll: r.enroll, Create: r.createPage, Start: r.openStore,
		Stop: (*pageStore).close, Handle: (*pageStore).newHandle, GiveUp: (*Page).Close, Left: r.pageLeft,
	})
}

// fillPage makes a page from the bucket's content; see presence.Host.
func (r *Repository) fillPage(ctx context.Context, k pageKey, dir string, a *layout.Absence) error {
	return r.cloud.Fill(ctx, k, dir, a)
}

// newCloud returns the link to the cloud. It moves the cloud and the passphrases out of the
// options, since fmt would print them there. Errors: those for an invalid Options.Cloud.
func newCloud(r *Repository) (*cloudlink.Link, error) {
	o := &r.o.Sync
	pass := secret.New(o.Passphrase)
	clear(o.Passphrase)
	var want *cloudlink.Cloud
	if r.o.Cloud != nil {
		named := cloudlink.Cloud(*r.o.Cloud)
		want = &named
	}
	o.Passphrase, r.o.Cloud = nil, nil
	return cloudlink.New(cloudlink.Options{
		Disk: r.disk, Dir: r.dir, ReadOnly: r.o.ReadOnly, Clock: r.clock, Logger: r.o.Logger, Openers: r.o.openers(), Stall: r.stall,
		Manual: o.Manual, Paused: o.Paused, Limits: o.Limits, MinPoll: o.MinPoll, MaxPoll: o.MaxPoll,
		Rules: r.o.uploadRules, TakeSecret: r.takeSecret, Gone: r.pages.Gone, Fetch: r.pages.Fetch,
		Name: func(k pageKey) (string, error) {
			name, _, err := r.usage.Page(k)
			return name, err
		},
		Open: func() (open []*cloudlink.Page) {
			for _, s := range r.pages.Stores(true) { // opening waits for no lock of the caller
				open = append(open, s.cloud)
			}
			return open
		},
		Visit: func(ctx context.Context, k pageKey, fn func(context.Context, *cloudlink.Page) error) error {
			return r.visit(ctx, k, func(ctx context.Context, p *Page) error { return fn(ctx, p.shared.cloud) })
		},
		Fresh: func(k pageKey) storage.Options {
			r.mu.Lock()
			delete(r.indexes, k)
			r.mu.Unlock()
			return r.storageOptions(k)
		},
	}, pass, want)
}

func newKeeper(r *Repository) *cloudlink.Keeper {
	return cloudlink.NewKeeper(r.cloud, cloudlink.KeeperOptions{
		OnlyOpen: r.o.Sync.OnlyOpen, Pages: r.o.Sync.OpenPages, Sync: r.syncBy(presence.ForSync), // Evict may close the page meanwhile
		Hold: func(ctx context.Context, k pageKey) (cloudlink.Held, error) {
			p, err := r.keepPage(ctx, refOf(k))
			if err != nil {
				return nil, err
			}
			return heldPage{p}, nil
		},
		Closed: func(k pageKey) bool { return r.pages.UseOf(k) == presence.Nobody },
		LastClosed: func(k pageKey) (time.Time, error) {
			_, at, err := r.usage.Page(k)
			return at, err
		},
	})
}

// heldPage is a handle that the keeper holds open.
type heldPage struct{ *Page }

// Closed reports whether the handle was closed.
func (p heldPage) Closed() bool { return p.in.Gate().Closed() }
