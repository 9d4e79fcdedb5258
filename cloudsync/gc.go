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
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
)

// GCOptions say how to collect the garbage of the bucket.
type GCOptions struct {
	// DryRun changes nothing: the report says what would be.
	DryRun bool
	// Grace is the time between condemning and deleting, by the bucket's clock; 0: 30 days. Less loses what devices that were away still need; it is for tests.
	Grace time.Duration
}

// GCReport says what was condemned and deleted.
type GCReport struct {
	// What was condemned by this call. CondemnedEntries is 0 as long as the bucket keeps all history.
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
	defaultGrace = 30 * day
	// keptCheckpoints is how many are kept: the newest, and one to go back to when that is damaged.
	keptCheckpoints = 2
	// maxCondemned bounds the packs, and the checkpoints, that one call condemns; there is always a next one.
	maxCondemned = 4096
	// maxSweeps bounds how often the log is surveyed anew because somebody has announced what was to be condemned.
	maxSweeps = 4
)

// errAnnounced reports that an entry has announced, since the survey, what was to be condemned.
var errAnnounced = errors.New("the log has come to need what was to be condemned")

// CollectGarbage condemns what nothing in the log needs, and deletes what was condemned before the grace. What is condemned: packs older than
// a day that no entry and no kept checkpoint speaks of, as a device leaves them that ended between the upload of a pack and that of its
// entry; and all checkpoints but the two newest. Of a page that is deleted for all devices it deletes everything but the floors, the grace after that. It syncs the page first, and reads all of the log. Ages are by the bucket's clock. Errors: as Sync.
func (p *Page) CollectGarbage(ctx context.Context, o GCOptions) (*GCReport, error) {
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	err := p.Sync(ctx) // what this device has uploaded is announced
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
			if report, err = p.sweep(ctx, o); !errors.Is(err, errAnnounced) {
				break
			}
			if err := p.begin(ctx); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return report, nil
}

// survey is what the log says of packs and checkpoints.
type survey struct {
	packs       map[format.ID]uint64 // needed, with the number of the last entry that speaks of it
	condemned   map[format.ID]sentence
	checkpoints map[uint64]sentence
}

// sentence says when something was condemned.
type sentence struct {
	number uint64
	at     time.Time // by the bucket's clock
}

func (s *survey) entry(e *format.Entry) error {
	b := e.Body
	for _, id := range needs(b) {
		s.packs[id] = e.Number
	}
	if b.Condemned != nil {
		for _, id := range b.Condemned.Packs {
			s.condemned[id] = sentence{e.Number, e.Created}
		}
		for _, n := range b.Condemned.Checkpoints {
			s.checkpoints[n] = sentence{e.Number, e.Created}
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
}

// sweep does one pass of the collection.
func (p *Page) sweep(ctx context.Context, o GCOptions) (*GCReport, error) {
	floor, now, err := p.ses.log.LookFloor(ctx)
	if err != nil {
		return nil, err
	}
	if now.IsZero() {
		now = p.s.gate.now()
	}
	var have stored
	if have.packs, err = listAll(ctx, p.b, p.names.PacksPrefix(), ""); err != nil {
		return nil, fmt.Errorf("list packs: %w", err)
	}
	if have.checkpoints, err = listAll(ctx, p.b, p.names.CheckpointsPrefix(), ""); err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	s := &survey{packs: map[format.ID]uint64{}, condemned: map[format.ID]sentence{}, checkpoints: map[uint64]sentence{}}
	if err := p.history(ctx)(s.entry); err != nil {
		return nil, err
	}
	kept := have.checkpoints[max(0, len(have.checkpoints)-keptCheckpoints):]
	if err := p.surveyCheckpoints(ctx, s, kept); err != nil {
		return nil, err
	}
	report := &GCReport{Floor: floor.Low}
	var due []bucket.Info
	c := &format.Condemnation{}
	p.judgePacks(s, have.packs, now, o.Grace, c, report, &due)
	p.judgeCheckpoints(s, have.checkpoints[:len(have.checkpoints)-len(kept)], now, o.Grace, c, report, &due)
	report.CondemnedPacks, report.CondemnedCheckpoints = len(c.Packs), len(c.Checkpoints)
	if len(c.Packs)+len(c.Checkpoints) > 0 && !o.DryRun {
		if err := p.condemn(ctx, c); err != nil {
			return nil, err
		}
	}
	return report, p.deleteDue(ctx, due, o.DryRun, report)
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
			return fmt.Errorf("read checkpoint %d: %w", number, err)
		}
		for i := range c.Packs {
			s.packs[c.Packs[i].ID] = math.MaxUint64
		}
	}
	return nil
}

// readCheckpoint reads the header of a checkpoint.
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
	return format.ReadCheckpoint(io.Reader(stream), maxCheckpointHeader)
}

// maxCheckpointHeader bounds the header of a checkpoint, which has all commits that are kept.
const maxCheckpointHeader = 1 << 30

// judgePacks condemns packs, and finds those whose time has come.
func (p *Page) judgePacks(s *survey, infos []bucket.Info, now time.Time, grace time.Duration, c *format.Condemnation, r *GCReport, due *[]bucket.Info) {
	for _, info := range infos {
		kind, _, _, id, ok := p.names.ParseName(info.Name)
		if !ok || kind != format.KindPack {
			continue
		}
		needed, spoken := s.packs[id]
		sentence, condemned := s.condemned[id]
		switch {
		case condemned && needed > sentence.number: // whoever did that broke the rules: nothing is lost by keeping it
		case condemned && now.Sub(sentence.at) >= grace:
			*due = append(*due, info)
		case condemned:
			r.WaitingBytes += info.Size
		case !spoken && now.Sub(info.Created) >= day && len(c.Packs) < maxCondemned:
			c.Packs = append(c.Packs, id)
			r.WaitingBytes += info.Size
		}
	}
}

// judgeCheckpoints does the same for checkpoints that newer ones have superseded.
func (p *Page) judgeCheckpoints(s *survey, infos []bucket.Info, now time.Time, grace time.Duration, c *format.Condemnation, r *GCReport, due *[]bucket.Info) {
	for _, info := range infos {
		kind, number, _, _, ok := p.names.ParseName(info.Name)
		if !ok || kind != format.KindCheckpoint {
			continue
		}
		sentence, condemned := s.checkpoints[number]
		switch {
		case condemned && now.Sub(sentence.at) >= grace:
			*due = append(*due, info)
		case condemned:
			r.WaitingBytes += info.Size
		case len(c.Checkpoints) < maxCondemned:
			c.Checkpoints = append(c.Checkpoints, number)
			r.WaitingBytes += info.Size
		}
	}
}

// condemn appends an entry that condemns, unless the log has meanwhile come to need one of the packs: then it is errAnnounced.
func (p *Page) condemn(ctx context.Context, c *format.Condemnation) error {
	o, err := p.out.Announce(ctx, &format.Body{Condemned: c})
	if err != nil {
		return err
	}
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
func (p *Page) deleteDue(ctx context.Context, due []bucket.Info, dry bool, r *GCReport) error {
	for _, info := range due {
		if !dry {
			if err := p.b.Delete(ctx, info.Name); err != nil {
				return fmt.Errorf("delete %s: %w", info.Name, err)
			}
		}
		r.DeletedObjects++
		r.DeletedBytes += info.Size
	}
	return nil
}

// SetRetention writes the bucket's retention into the page's log, for all devices. What it gives up is not deleted yet. Errors: as Sync; base.ErrInvalid.
func (p *Page) SetRetention(ctx context.Context, r format.Retention) error {
	if err := p.Sync(ctx); err != nil {
		return err
	}
	return p.withTurn(ctx, "set retention", func(ctx context.Context) error {
		o, err := p.out.Announce(ctx, &format.Body{Retention: &r})
		if err != nil {
			return err
		}
		if err := p.append(ctx, o); err != nil {
			return err
		}
		return p.keepRetention(ctx, r)
	})
}
