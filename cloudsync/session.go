package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// session is the state of a page's log since the page was opened. It belongs to the holder of the
// turn.
type session struct {
	log     *pagelog.Log // nil: the store's records were not read yet
	lookAt  time.Time    // when the epochs are listed next; zero: they were not listed
	tip     time.Time    // when the log last had no entry left to apply; zero: unknown
	arrived bool         // heads have arrived since Arrived was called
	slack   float64      // of this device: how much later than others it cuts
	content uint64       // the content of the page in bytes when last measured
	retryAt time.Time    // when a failed cut is retried

	auditAt  time.Time // when the next audit is due; zero: now
	appended bool      // this session has appended
	waits    bool      // nothing may be sent before the heads are merged: see replica.ErrWaits

	completed bool // the heads have trees, as far as the bucket has the data
}

const day = 24 * time.Hour

func (p *Page) replicaOptions() replica.Options {
	return replica.Options{
		Store: p.store, Bucket: p.b, Sealer: p.s.sealer, Names: p.names, Fetcher: p.fetcher, NewID: p.s.newID,
		Plain: p.o.Plain, Again: p.o.Again, InUse: p.o.InUse, Up: p.up.progress, Down: p.down.progress,
	}
}

// load reads what the store records of the log. A page of another bucket is an error.
func (p *Page) load(ctx context.Context) error {
	o := p.replicaOptions()
	rep, err := replica.Open(ctx, o)
	if err == nil && !rep.Position().Joined() {
		if err = p.mistrust(ctx); err == nil {
			rep, err = replica.Open(ctx, o)
		}
	}
	if err != nil {
		return err
	}
	if id := p.s.o.Keyring.BucketID(); rep.Position().Joined() && rep.State().Bucket != id {
		return fmt.Errorf("the page was synced with bucket %s, and this is %s: %w", rep.State().Bucket, id, ErrBucketReplaced)
	}
	p.ses.log = pagelog.New(pagelog.Options{
		Bucket: p.b, Sealer: p.s.sealer, Names: p.names, Page: incoming{rep, p}, NewID: p.s.newID, KeyIndex: rep.State().KeyIndex,
	}, rep.Position())
	p.rep.Store(rep)
	p.positioned()
	return nil
}

// mistrust forgets the bucket if the store has records of it but has lost the row with the
// position: without the row nothing proves which commits were sent. All commits then count as
// unsynced, and are compared with the log.
func (p *Page) mistrust(ctx context.Context) error {
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		return fmt.Errorf("look for what is not synced: %w", err)
	}
	known := slices.ContainsFunc(p.store.Heads(), func(h *commit.Commit) bool { return !h.IsFirst() && !slices.Contains(unsynced, h.ID) })
	if !known {
		placed, err := p.store.PlacedIn(ctx, func(storage.CloudPlace) bool { return true })
		if err != nil {
			return fmt.Errorf("look for what is placed: %w", err)
		}
		known = len(placed) > 0
	}
	if !known {
		return nil
	}
	p.s.o.Logger.Warn("the position in the bucket is lost: everything here is compared with what the bucket has", "ledger", p.o.Ledger, "page", p.pageID())
	return forget(ctx, p.store)
}

// Forget removes the record of the bucket from a page without a Page, except that some pieces may
// be only in the bucket. Everything stored here then counts as unsynced, and is compared with the
// bucket at the next sync. A page that gives history up by itself first forgets its bucket: with a
// bucket, only the log gives commits up. Forget does nothing for a page without a bucket. It
// returns when the change is durable. Errors: those of the disk and of ctx.
func Forget(ctx context.Context, s *storage.Store) error {
	at, err := replica.StandingOf(ctx, s)
	if err != nil || !at.At.Joined() {
		return err
	}
	return forget(ctx, s)
}

// Prune gives up commits of a page that has no Page and no record of a bucket; see Forget. Their
// descendants keep their nearest ancestors for merges, and for a later bucket. Errors and kept are
// those of storage.Store.Prune.
func Prune(ctx context.Context, s *storage.Store, ids []commit.ID) (kept []commit.ID, err error) {
	return replica.Prune(ctx, s, ids)
}

func forget(ctx context.Context, s *storage.Store) error {
	if err := s.ForgetCloud(ctx, false); err != nil {
		return fmt.Errorf("forget the bucket: %w", err)
	}
	return nil
}

// begin makes sure that the log is loaded and that the bucket has the known keyring.
func (p *Page) begin(ctx context.Context) error {
	if p.ses.log == nil {
		if err := p.load(ctx); err != nil {
			return err
		}
	}
	return p.s.checkKeys(ctx, proofForReading)
}

// ready is begin for a round: it reports a failure in both directions.
func (p *Page) ready(ctx context.Context) error {
	err := p.begin(ctx)
	if err != nil {
		p.ends(ctx, &p.down, err)
		p.ends(ctx, &p.up, err)
	}
	return err
}

// incoming is the page of the log; it records what arrives.
type incoming struct {
	*replica.Page
	p *Page
}

// Apply implements pagelog.Page.
func (i incoming) Apply(ctx context.Context, e *pagelog.Entry, next epoch.Position) error {
	return i.note(func() error { return i.Page.Apply(ctx, e, next) }, 1)
}

// Enter implements pagelog.Page.
func (i incoming) Enter(ctx context.Context, x *pagelog.Epoch, next epoch.Position) error {
	return i.note(func() error { return i.Page.Enter(ctx, x, next) }, 0)
}

// note calls take, which applies the given number of entries.
func (i incoming) note(take func() error, entries int64) error {
	p := i.p
	before := map[commit.ID]bool{}
	for _, h := range p.store.Heads() {
		before[h.ID] = true
	}
	if err := take(); err != nil {
		return err
	}
	p.s.applied.Add(entries)
	for _, h := range p.store.Heads() {
		p.ses.arrived = p.ses.arrived || !before[h.ID]
	}
	p.positioned()
	return nil
}

// positioned publishes the page's position.
func (p *Page) positioned() {
	st := p.rep.Load().State()
	p.change(func() {
		p.position, p.serverTime = st.At.Number, time.Time{}
		if st.EntryTime != 0 {
			p.serverTime = time.Unix(0, int64(st.EntryTime))
		}
	})
}

// minReads is how often an object is read before damage is believed: damage in transit is gone the
// next time.
const minReads = 3

// withLog calls do, which works on the log, and again with newer keys if do needs them. If the
// bucket is damaged, it repairs the bucket from the page and calls do once more. A bare page leaves
// the repair to other devices.
func (p *Page) withLog(ctx context.Context, do func() error) error {
	looked, renewed := false, false
	for reads := 1; ; reads++ {
		err := p.s.withNewerKeys(ctx, do)
		var bad *pagelog.DamageError
		switch {
		case !errors.As(err, &bad), errors.Is(err, base.ErrUnsupported):
			return p.explain(ctx, err)
		case reads < minReads:
			continue
		case !looked: // another device may have repaired the bucket
			looked = true
			at := p.ses.log.Position()
			lookErr := p.s.withNewerKeys(ctx, func() error { return p.ses.log.Look(ctx) })
			if lookErr != nil && !errors.As(lookErr, &bad) {
				return p.explain(ctx, lookErr)
			}
			if p.ses.log.Position().Epoch != at.Epoch {
				reads = 0
			}
			continue
		case renewed || p.isBare():
			return pack.AsDamaged(err)
		}
		p.complain(ctx, "the bucket is damaged, and is repaired from what is here", err)
		if renewErr := p.renew(ctx, false); renewErr != nil {
			return pack.AsDamaged(fmt.Errorf("%w: repair the bucket: %w", err, p.explain(ctx, renewErr)))
		}
		renewed = true
	}
}

// renew repairs the bucket, or enters the epoch of another device that has repaired it. anyway is
// that of pagelog.Log.Renew.
func (p *Page) renew(ctx context.Context, anyway bool) error {
	if err := p.s.checkKeys(ctx, proofAnew); err != nil {
		return err
	}
	err := p.s.withNewerKeys(ctx, func() error { return p.ses.log.Renew(ctx, anyway) })
	if err == nil {
		p.looked()
		err = p.announce(ctx)
	}
	return err
}

// isBare reports whether the page has only its first commit.
func (p *Page) isBare() bool {
	heads := p.store.Heads()
	return len(heads) == 1 && heads[0].IsFirst()
}

// explain returns an error of the log as callers get it. If the bucket lacks objects that the
// device has seen, explain finds out why.
func (p *Page) explain(ctx context.Context, err error) error {
	if !errors.Is(err, pagelog.ErrWiped) && !errors.Is(err, pagelog.ErrRolledBack) {
		return err
	}
	if found := p.s.checkKeys(ctx, proofAnew); found != nil {
		return found
	}
	return fmt.Errorf("%w: %w", err, ErrBucketRolledBack)
}

// fresh reports whether the log had no new entries a short while ago, so that sending without a
// look is worthwhile.
func (p *Page) fresh() bool {
	age := p.s.o.Clock.Now().Sub(p.ses.tip)
	return !p.ses.tip.IsZero() && age >= 0 && age <= p.s.o.MaxPoll
}

// download applies all new entries, and reports whether there were any.
func (p *Page) download(ctx context.Context) (bool, error) {
	came, err := p.catchUp(ctx)
	if err == nil {
		err = p.audit(ctx)
	}
	if err == nil {
		err = p.tidy(ctx)
	}
	if err == nil {
		err = p.complete(ctx)
	}
	p.ses.tip = time.Time{}
	if err == nil {
		p.ses.tip = p.s.o.Clock.Now()
		p.schedule(came)
	}
	p.ends(ctx, &p.down, err)
	if wrongBucket(err) {
		p.ends(ctx, &p.up, err)
	}
	p.tellArrived()
	return came, err
}

// catchUp reads the log to its end. It lists the epochs when the session begins and once a day. If
// the bucket has nothing of the page, catchUp founds no log: only a device that sends does.
func (p *Page) catchUp(ctx context.Context) (came bool, err error) {
	if !p.ses.log.Position().Joined() {
		if none, err := p.nothing(ctx); none || err != nil {
			return false, err
		}
	}
	err = p.withLog(ctx, func() error {
		if p.until(p.ses.lookAt) == 0 {
			if err := p.ses.log.Look(ctx); err != nil {
				return err
			}
			p.looked()
		}
		more, err := p.ses.log.CatchUp(ctx)
		came = came || more
		return err
	})
	return came, err
}

// nothing reports whether the bucket lacks the page. To a bare page, entries without an epoch are
// damage; one with data begins the log again.
func (p *Page) nothing(ctx context.Context) (bool, error) {
	if !p.ses.lookAt.IsZero() { // one get is enough while waiting for the page to appear
		_, err := bucket.SizeOf(ctx, p.b, p.names.Epoch(0))
		if errors.Is(err, base.ErrNotFound) {
			return true, nil
		}
		return false, err
	}
	infos, err := p.b.List(ctx, "", p.names.Epochs(), 1)
	if err != nil {
		return false, fmt.Errorf("look for the page in the bucket: %w", err)
	}
	if len(infos) == 0 && p.isBare() {
		entries, err := p.b.List(ctx, "", p.names.Logs(), 1)
		if err != nil {
			return false, fmt.Errorf("look for a log without an epoch: %w", err)
		}
		if len(entries) > 0 {
			return false, pack.AsDamaged(&pagelog.DamageError{Object: p.names.Epoch(0), Err: fmt.Errorf("it is missing, and %s is there", entries[0].Name)})
		}
	}
	if len(infos) == 0 {
		p.looked()
	}
	return len(infos) == 0, nil
}

// looked records that the epochs were listed now.
func (p *Page) looked() { p.ses.lookAt = p.s.o.Clock.Now().Add(day) }

// join enters the newest epoch, or founds the first, if the page is in none.
func (p *Page) join(ctx context.Context) error {
	if p.ses.log.Position().Joined() {
		return nil
	}
	err := p.withLog(ctx, func() error { return p.ses.log.Look(ctx) })
	if err == nil && p.ses.log.Position().Number == 0 { // there is nothing to audit yet
		p.ses.auditAt = p.s.o.Clock.Now().Add(day)
	}
	return err
}

// audit proves, when due, that the log of the epoch lacks no entry, and repairs the log.
func (p *Page) audit(ctx context.Context) error {
	if !p.ses.log.Position().Joined() || p.until(p.ses.auditAt) > 0 {
		return nil
	}
	var holes []uint64
	err := p.withLog(ctx, func() (err error) {
		holes, err = p.ses.log.Audit(ctx, p.ses.log.Position().Number-p.rep.Load().State().Entries+1)
		return err
	})
	if err != nil {
		return fmt.Errorf("audit the log: %w", err)
	}
	p.ses.auditAt = p.nextAudit()
	if len(holes) > 0 { // packs may be missing too
		p.s.o.Logger.Warn("entries of the log are missing, and are replaced by a checkpoint", "ledger", p.o.Ledger, "page", p.pageID(),
			"first", p.names.Entry(p.ses.log.Position().Epoch, holes[0]), "entries", len(holes))
		return p.explain(ctx, p.renew(ctx, false))
	}
	return nil
}

// nextAudit returns when the next audit is due: in a day, or some hours earlier, so that audits and
// lists of the epochs stay hours apart.
func (p *Page) nextAudit() time.Time {
	next := p.s.o.Clock.Now().Add(day)
	if apart := next.Sub(p.ses.lookAt) % day; apart < day/12 || apart > day*11/12 {
		next = next.Add(-day / 6)
	}
	return next
}

// complete builds, once in a session, the trees of heads that lack a part here. A repair that could
// not reach the bucket leaves such trees. A tree that the bucket lacks stays as it is.
func (p *Page) complete(ctx context.Context) error {
	if p.ses.completed || !p.ses.log.Position().Joined() {
		return nil
	}
	var heads []commit.ID
	for _, h := range p.store.Heads() {
		heads = append(heads, h.ID)
	}
	err := p.s.withNewerKeys(ctx, func() error { return p.rep.Load().BuildTrees(ctx, heads) })
	if err != nil && !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrCorrupt) {
		return fmt.Errorf("complete the trees of the heads: %w", err)
	}
	p.ses.completed = true
	return nil
}

// tidy prunes the commits given up, unless merges need them first.
func (p *Page) tidy(ctx context.Context) error {
	rep := p.rep.Load()
	pruned, err := rep.Prune(ctx)
	if err != nil {
		return fmt.Errorf("prune what was given up: %w", err)
	}
	if pruned == 0 {
		return nil
	}
	return p.collect(ctx)
}

// collect deletes unreferenced data here.
func (p *Page) collect(ctx context.Context) error {
	if p.o.Collect != nil {
		return p.o.Collect(ctx)
	}
	c := p.store.NewCollector(storage.CollectOptions{})
	for c.Stats().Cycles < 2 { // the first cycle may already have passed data that it unreferences
		if _, err := c.Step(ctx); err != nil {
			return fmt.Errorf("collect what was given up: %w", err)
		}
	}
	return nil
}

// tellArrived notifies the page's owner of heads that arrived.
func (p *Page) tellArrived() {
	if p.ses.arrived && p.o.Arrived != nil {
		p.o.Arrived()
	}
	p.ses.arrived = false
}

// keepRows makes rows of metadata durable.
func keepRows(ctx context.Context, store *storage.Store, rows ...storage.Metadata) error {
	pending, err := store.SubmitSync(ctx, nil, &storage.SyncBatch{Metadata: rows})
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		return fmt.Errorf("keep metadata: %w", err)
	}
	return nil
}
