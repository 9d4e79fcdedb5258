package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// GCOptions say how to collect the garbage of the bucket.
type GCOptions struct {
	// DryRun changes nothing: the report says what would be.
	DryRun bool
	// Keep are commits that are not given up here, whatever the retention says.
	Keep []commit.ID

	erase *erasure
}

// GCReport says what was condemned and deleted.
type GCReport struct {
	// What was condemned by this call. CondemnedEntries is 0 as long as the bucket keeps all
	// history.
	CondemnedPacks, CondemnedCheckpoints, CondemnedEntries int
	// DeletedObjects were condemned longer than the grace ago, and have DeletedBytes.
	DeletedObjects int
	DeletedBytes   int64
	// WaitingBytes are condemned and not deleted yet.
	WaitingBytes int64
	// Floor is the lowest number of the log that stays.
	Floor uint64
}

const (
	// grace is the time between condemning and deleting, by the bucket's clock: less would lose
	// what devices that were away still need.
	grace = 30 * day
	// keptCheckpoints is how many are kept: the newest, and one to go back to when that is damaged.
	keptCheckpoints = 2
	// maxCondemned bounds the packs, and the checkpoints, that one call condemns; there is always a
	// next one.
	maxCondemned = 4096
	// maxSweeps bounds how often the log is surveyed anew because somebody has announced what was
	// to be condemned.
	maxSweeps = 4
)

// errAnnounced reports that an entry has announced, since the survey, what was to be condemned.
var errAnnounced = errors.New("the log has come to need what was to be condemned")

// syncFor syncs the page before its garbage is collected. A dry run brings down what there is and
// sends nothing.
func (p *Page) syncFor(ctx context.Context, o GCOptions) error {
	if !o.DryRun {
		return p.Sync(ctx)
	}
	return p.withTurn(ctx, "read the log", func(ctx context.Context) error {
		_, err := p.download(ctx)
		return err
	})
}

// CollectGarbage condemns what nothing in the log needs, and deletes what was condemned before the
// grace. What is condemned: packs older than a day that no entry and no kept checkpoint speaks of,
// as a device leaves them that ended between the upload of a pack and that of its entry; and all
// checkpoints but the two newest and those that the floor stands on. Where the bucket's retention
// gives history up, it first prunes that here (see GiveUp; keep are further commits that stay),
// writes a checkpoint that stands for what is kept, condemns the entries before and what only they
// need, and writes a floor. Of a page that is deleted for all devices it deletes everything but the
// floors, the grace after that. It syncs the page first, and reads all of the log; where an entry
// is missing in the midst of it, it does nothing. Ages are by the bucket's clock. Errors: as Sync.
func (p *Page) CollectGarbage(ctx context.Context, o GCOptions) (*GCReport, error) {
	err := p.syncFor(ctx, o) // what this device has uploaded is announced
	deleted := errors.Is(err, ErrDeleted)
	if err != nil && !deleted {
		return nil, err
	}
	var report *GCReport
	err = p.withTurn(ctx, "collect garbage", func(ctx context.Context) (err error) {
		if deleted {
			report, err = p.sweepDeleted(ctx, o)
			return err
		}
		for range maxSweeps {
			if report, err = p.sweep(ctx, o); !errors.Is(err, errAnnounced) && !errors.Is(err, cloudlog.ErrRemake) {
				break
			}
			if err := p.begin(ctx); err != nil {
				return err
			}
		}
		return err
	})
	if err == nil && report.CondemnedEntries > 0 && !o.DryRun {
		err = p.Sync(ctx) // what has lost its place and is needed is sent again
	}
	if errors.Is(err, errAnnounced) { // the log goes on and on, or what answers does not come through
		err = fmt.Errorf("%w: %w", err, base.ErrNetwork)
	}
	if err != nil {
		return nil, err
	}
	return report, nil
}

// survey is what the log says of packs, checkpoints and commits.
type survey struct {
	packs       map[format.ID]uint64 // needed, with the number of the last entry that speaks of it
	condemned   map[format.ID]sentence
	checkpoints map[uint64]sentence
	below       []sentence           // of entries; limit says below which number
	commits     map[commit.ID]uint64 // and in which entry they are
	since       map[uint64]uint64    // of entries whose bases were heads of the log as of an earlier one, which that was
	first       uint64               // the first entry that is there
	waited      uint64               // up to which entry all known devices have read
	unread      []commit.ID          // commits of entries behind that, and what they are built on
}

// sentence says when something was condemned.
type sentence struct {
	number uint64
	at     time.Time // by the bucket's clock
	limit  uint64
}

// ripe reports whether the grace is over at now, as protocol.CondemnedGone says. It never is when
// the time of the condemnation is not known: ranges are not sealed and may say so of any entry.
func (s sentence) ripe(now time.Time, grace time.Duration) bool {
	return !s.at.IsZero() && now.Sub(s.at) >= grace
}

func (s *survey) entry(e *format.Entry) error {
	b := e.Body
	for _, id := range needs(b) {
		s.packs[id] = e.Number
	}
	for i := range b.Commits {
		c := &b.Commits[i]
		if s.commits[c.Commit.ID] = e.Number; e.Number > s.waited {
			s.unread = append(append(s.unread, c.Commit.ID, c.Base.Commit), c.Commit.Parents...)
		}
	}
	if b.Since > 0 {
		s.since[e.Number] = b.Since
	}
	if c := b.Condemned; c != nil {
		for _, id := range c.Packs {
			s.condemned[id] = sentence{number: e.Number, at: e.Created}
		}
		for _, n := range c.Checkpoints {
			s.checkpoints[n] = sentence{number: e.Number, at: e.Created}
		}
		if c.Below > 0 {
			s.below = append(s.below, sentence{e.Number, e.Created, c.Below})
		}
	}
	return nil
}

// needs returns the packs that a body speaks of.
func needs(b *format.Body) (ids []format.ID) {
	for i := range b.Packs {
		ids = append(ids, b.Packs[i].ID)
	}
	ids = append(ids, b.Relies...)
	for i := range b.Commits {
		ids = append(ids, b.Commits[i].Diff.Pack)
	}
	for i := range b.Explanations {
		ids = append(ids, b.Explanations[i].Diff.Pack)
	}
	return ids
}

// stored is what the bucket has.
type stored struct {
	packs       []bucket.Info
	checkpoints []bucket.Info
	old         []bucket.Info // entries and ranges that begin below the floor
}

func (p *Page) listStored(ctx context.Context, floor format.Floor) (have stored, err error) {
	if have.packs, err = listAll(ctx, p.b, p.names.PacksPrefix(), ""); err != nil {
		return have, fmt.Errorf("list packs: %w", err)
	}
	if have.checkpoints, err = listAll(ctx, p.b, p.names.CheckpointsPrefix(), ""); err != nil {
		return have, fmt.Errorf("list checkpoints: %w", err)
	}
	if have.old, err = p.listBelow(ctx, floor.Low); err != nil {
		return have, fmt.Errorf("list the log: %w", err)
	}
	return have, nil
}

// listBelow lists entries and ranges that begin below a number.
func (p *Page) listBelow(ctx context.Context, low uint64) (all []bucket.Info, err error) {
	after := ""
	for low > 1 {
		infos, err := p.b.List(ctx, after, p.names.LogPrefix(), bucket.MaxList)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			kind, from, _, _, ok := p.names.ParseName(info.Name)
			if info.Name <= after || ok && from >= low {
				return all, nil
			}
			if after = info.Name; ok && (kind == format.KindEntry || kind == format.KindRange) {
				all = append(all, info)
			}
		}
		if len(infos) < bucket.MaxList {
			break
		}
	}
	return all, nil
}

// sweep does one pass of the collection.
func (p *Page) sweep(ctx context.Context, o GCOptions) (*GCReport, error) {
	floor, now, err := p.ses.log.LookFloor(ctx)
	if err != nil {
		return nil, err
	}
	if floor.Deleted { // since Sync has looked
		return p.sweepDeleted(ctx, o)
	}
	if now.IsZero() {
		now = p.s.gate.now()
	}
	have, err := p.listStored(ctx, floor)
	if err != nil {
		return nil, err
	}
	if err := p.seesEnd(ctx, have.checkpoints); err != nil {
		return nil, err
	}
	s, err := p.survey(ctx, floor, &have)
	if err != nil {
		return nil, err
	}
	report := &GCReport{Floor: floor.Low}
	next, err := p.pass(ctx, o, s, floor, &have)
	if err != nil {
		return nil, err
	}
	c := &format.Condemnation{}
	kept := p.keptCheckpoints(s, have.checkpoints, floor, next)
	if o.erase != nil {
		kept = slices.DeleteFunc(kept, func(i bucket.Info) bool { return i.Name != p.names.Checkpoint(next.Checkpoint) })
		c.Packs = o.erase.packsIn(p.names, have.packs, s)
	}
	if err := p.surveyCheckpoints(ctx, s, kept); err != nil {
		return nil, err
	}
	var due []bucket.Info
	if next.Low > floor.Low {
		c.Below = next.Low
		report.CondemnedEntries = int(next.Low - max(floor.Low, 1))
		if have.old, err = p.listBelow(ctx, next.Low); err != nil {
			return nil, fmt.Errorf("list the log: %w", err)
		}
	}
	if err := p.judgeEntries(ctx, s, have.old, floor, next.Low, now, grace, report, &due); err != nil {
		return nil, err
	}
	low := next.Low
	if o.DryRun { // the checkpoint that would tell what is still needed is not there
		low = floor.Low
	}
	p.judgePacks(s, have.packs, low, now, grace, c, report, &due)
	p.judgeCheckpoints(s, have.checkpoints, kept, now, grace, c, report, &due)
	report.CondemnedPacks, report.CondemnedCheckpoints = len(c.Packs), len(c.Checkpoints)
	if (len(c.Packs)+len(c.Checkpoints) > 0 || c.Below > 0) && !o.DryRun {
		if err := p.condemn(ctx, c); err != nil {
			return nil, err
		}
	}
	if c.Below > 0 && !o.DryRun {
		if err := p.raiseFloor(ctx, next.Low, next.Checkpoint); err != nil {
			return nil, err
		}
		floor, _ := p.ses.log.Floor()
		report.Floor = floor.Low
		if err := p.keepFloor(ctx); err != nil {
			return nil, err
		}
	}
	return report, deleteDue(ctx, p.b, due, o.DryRun, report)
}

// seesEnd proves that nothing stands behind the last entry that the page has read: what that needs
// would be taken for garbage. A log in the midst of which an entry is missing ends there for who
// has not read further, and he notices that when he looks for it. Errors: errAnnounced when the log
// goes on, and has been read; a *cloudlog.UnreadableError.
func (p *Page) seesEnd(ctx context.Context, checkpoints []bucket.Info) error {
	at := p.ses.log.Position().Number
	err := p.passing(ctx, func() error { return p.lookBehind(ctx) })
	if now := p.ses.log.Position().Number; errors.Is(err, errMore) || err == nil && now != at {
		if _, err = p.download(ctx); err == nil {
			err = errAnnounced
		}
	}
	if err != nil {
		return err
	}
	for _, info := range checkpoints {
		if kind, n, _, _, ok := p.names.ParseName(info.Name); ok && kind == format.KindCheckpoint && n > at {
			return p.noEntry(at+1, fmt.Sprintf("an entry, as there is checkpoint %d", n))
		}
	}
	return nil
}

// survey reads the log from the first entry that is there.
func (p *Page) survey(ctx context.Context, floor format.Floor, have *stored) (*survey, error) {
	waited, err := p.waitedFor(ctx)
	if err != nil {
		return nil, err
	}
	read := func(first uint64) (*survey, error) {
		s := &survey{waited: waited, packs: map[format.ID]uint64{}, condemned: map[format.ID]sentence{}, checkpoints: map[uint64]sentence{}, commits: map[commit.ID]uint64{}, since: map[uint64]uint64{}, first: first}
		from, err := p.positionAt(ctx, first-1)
		next := first
		if err == nil {
			err = p.entriesBehind(ctx, from, func(e *format.Entry) error {
				if e.Number != next { // what it is silent about may be needed
					return errSkipped
				}
				next++
				return s.entry(e)
			})
		}
		return s, err
	}
	since, err := p.floorCreated(ctx, floor)
	if err != nil {
		return nil, err
	}
	first := p.firstWaiting(have.old, floor, since)
	s, err := read(first)
	if low := max(floor.Low, 1); err != nil && first < low {
		p.s.o.Logger.Warn("what is left of the log below the floor is passed over", "ledger", p.o.Ledger, "page", p.pageID(), "error", err)
		s, err = read(low)
	}
	return s, err
}

// floorCreated returns when a floor was put, by the bucket's clock.
func (p *Page) floorCreated(ctx context.Context, floor format.Floor) (time.Time, error) {
	if floor.K == 0 {
		return time.Time{}, nil
	}
	_, created, err := p.readFloor(ctx, floor.K)
	return created, err
}

// maxFloorBytes bounds the object of a floor.
const maxFloorBytes = 4 << 10

// readFloor reads a floor, which is there.
func (p *Page) readFloor(ctx context.Context, k uint64) (format.Floor, time.Time, error) {
	o, err := p.b.Get(ctx, p.names.Floor(k), 0, -1)
	if err != nil {
		return format.Floor{}, time.Time{}, fmt.Errorf("read floor %d: %w", k, err)
	}
	defer o.Body.Close()
	b, err := io.ReadAll(io.LimitReader(o.Body, maxFloorBytes))
	if err != nil {
		return format.Floor{}, time.Time{}, fmt.Errorf("read floor %d: %w", k, err)
	}
	f, err := format.OpenFloor(p.s.sealer, p.names, k, b)
	return f, o.Created, err
}

// keptCheckpoints returns the checkpoints that stay: the newest that are not condemned, and those
// that a floor stands on.
func (p *Page) keptCheckpoints(s *survey, infos []bucket.Info, floors ...format.Floor) (kept []bucket.Info) {
	newest := 0
	for _, info := range slices.Backward(infos) {
		kind, number, _, _, ok := p.names.ParseName(info.Name)
		if !ok || kind != format.KindCheckpoint {
			continue
		}
		_, condemned := s.checkpoints[number]
		stays := !condemned && newest < keptCheckpoints
		if stays {
			newest++
		}
		for _, f := range floors {
			stays = stays || number == f.Checkpoint || number == f.Low
		}
		if stays {
			kept = append(kept, info)
		}
	}
	return kept
}

// judgeEntries finds the entries and ranges below the floor whose time has come. Those below next
// wait.
func (p *Page) judgeEntries(ctx context.Context, s *survey, old []bucket.Info, floor format.Floor, next uint64, now time.Time, grace time.Duration, r *GCReport, due *[]bucket.Info) error {
	low := uint64(0)
	for k := floor.K; k > 0 && low == 0 && len(old) > 0; k-- { // floors rise: the newest whose grace is over counts
		f, created, err := p.readFloor(ctx, k)
		if err != nil {
			return err
		}
		if created.IsZero() || now.Sub(created) < grace {
			continue
		}
		low = f.Low
		if low <= s.first {
			break
		}
		ripe := uint64(0) // of what has been condemned long enough
		for _, b := range s.below {
			if b.ripe(now, grace) {
				ripe = max(ripe, b.limit)
			}
		}
		if low = min(low, ripe); low == 0 {
			break
		}
	}
	for _, info := range old {
		kind, from, to, _, _ := p.names.ParseName(info.Name)
		if kind == format.KindEntry {
			to = from
		}
		switch {
		case to < low:
			*due = append(*due, info)
		case to < max(floor.Low, next):
			r.WaitingBytes += info.Size
		}
	}
	return nil
}

// surveyCheckpoints takes the packs of checkpoints as needed for ever.
func (p *Page) surveyCheckpoints(ctx context.Context, s *survey, infos []bucket.Info) error {
	for _, info := range infos {
		kind, number, _, _, ok := p.names.ParseName(info.Name)
		if !ok || kind != format.KindCheckpoint {
			continue
		}
		c, err := p.readCheckpoint(ctx, number)
		if errors.Is(err, base.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		for i := range c.Packs {
			s.packs[c.Packs[i].ID] = math.MaxUint64
		}
	}
	return nil
}

// readCheckpoint reads the header of a checkpoint, which is the one of that number: who goes on
// behind it does not come back to where he was.
func (p *Page) readCheckpoint(ctx context.Context, number uint64) (*format.Checkpoint, error) {
	o, err := p.b.Get(ctx, p.names.Checkpoint(number), 0, -1)
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	stream, err := p.s.sealer.NewStream(o.Body, p.names.CheckpointLabel(number))
	if err != nil {
		return nil, err
	}
	c, err := format.ReadCheckpoint(io.Reader(stream), maxCheckpointHeader)
	if err == nil {
		err = c.CheckAt(format.ID(p.s.o.Keyring.BucketID()), number)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.names.Checkpoint(number), err)
	}
	return c, nil
}

// maxCheckpointHeader bounds the header of a checkpoint, which has all commits that are kept.
const maxCheckpointHeader = 1 << 30

// judgePacks condemns packs of which no entry from low on and no kept checkpoint speaks, and finds
// those whose time has come.
func (p *Page) judgePacks(s *survey, infos []bucket.Info, low uint64, now time.Time, grace time.Duration, c *format.Condemnation, r *GCReport, due *[]bucket.Info) {
	for _, info := range infos {
		kind, _, _, id, ok := p.names.ParseName(info.Name)
		if !ok || kind != format.KindPack {
			continue
		}
		needed := s.packs[id]
		sentence, condemned := s.condemned[id]
		switch {
		case slices.Contains(c.Packs, id):
			r.WaitingBytes += info.Size
		case condemned && needed > sentence.number: // whoever did that broke the rules: nothing is lost by keeping it
		case condemned && sentence.ripe(now, grace):
			*due = append(*due, info)
		case condemned:
			r.WaitingBytes += info.Size
		case needed < max(low, 1) && now.Sub(info.Created) >= day && len(c.Packs) < maxCondemned:
			c.Packs = append(c.Packs, id)
			r.WaitingBytes += info.Size
		}
	}
}

// judgeCheckpoints does the same for checkpoints that newer ones have superseded.
func (p *Page) judgeCheckpoints(s *survey, infos, kept []bucket.Info, now time.Time, grace time.Duration, c *format.Condemnation, r *GCReport, due *[]bucket.Info) {
	for _, info := range infos {
		kind, number, _, _, ok := p.names.ParseName(info.Name)
		if !ok || kind != format.KindCheckpoint || slices.Contains(kept, info) {
			continue
		}
		sentence, condemned := s.checkpoints[number]
		switch {
		case condemned && sentence.ripe(now, grace):
			*due = append(*due, info)
		case condemned:
			r.WaitingBytes += info.Size
		case len(c.Checkpoints) < maxCondemned:
			c.Checkpoints = append(c.Checkpoints, number)
			r.WaitingBytes += info.Size
		}
	}
}

// condemn appends an entry that condemns, unless the log has meanwhile come to need one of the
// packs: then it is errAnnounced.
func (p *Page) condemn(ctx context.Context, c *format.Condemnation) error {
	o, err := p.out.Announce(ctx, &format.Body{Condemned: c})
	if err != nil {
		return err
	}
	// Before it is in the log: whatever becomes of it, no piece loses more by that than its place,
	// and is sent again when it is needed.
	if err := p.in.Condemn(ctx, c); err != nil {
		return err
	}
	p.ses.resend = true
	packs := slices.Clone(c.Packs)
	return p.appendAfter(ctx, o, func(ctx context.Context, entries []*format.Entry, at format.Position) error {
		if err := p.apply(ctx, entries, at); err != nil {
			return err
		}
		for _, e := range entries {
			for _, id := range needs(e.Body) {
				if slices.Contains(packs, id) {
					p.ses.log = nil // what was applied is durable: the log goes on from there
					return errAnnounced
				}
			}
		}
		return nil
	})
}

// deleteDue deletes what was condemned long enough ago.
func deleteDue(ctx context.Context, b bucket.Bucket, due []bucket.Info, dry bool, r *GCReport) error {
	for _, info := range due {
		if !dry {
			if err := b.Delete(ctx, info.Name); err != nil {
				return fmt.Errorf("delete %s: %w", info.Name, err)
			}
		}
		r.DeletedObjects++
		r.DeletedBytes += info.Size
	}
	return nil
}
