package cloudsync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

const (
	// maxJoins bounds how often the log is read on since others have appended meanwhile.
	maxJoins = 16
	// minReads is how often a log is found unreadable before it is believed: bytes that were
	// changed on their way are right the next time, and what is given up may be nowhere else.
	minReads = 3
	// maxPlugs bounds the numbers that are kept from being taken once a floor is above them.
	maxPlugs = 64
)

// joinLog reads the log to its end, and makes one of it that can be read when it cannot, or when
// something in the bucket is damaged: see renew. A page that has nothing takes what it gets.
func (p *Page) joinLog(ctx context.Context, d *damage) error {
	reads := 0
	for range maxJoins {
		_, err := p.download(ctx)
		if err != nil && !unreadable(err) {
			return err
		}
		if p.ses.log == nil {
			if err := p.load(ctx); err != nil {
				return err
			}
		}
		if err != nil {
			if reads++; reads < minReads {
				continue
			}
		}
		at := p.ses.log.Position()
		s, surveyErr := p.surveyLog(ctx)
		switch {
		case surveyErr != nil:
			return surveyErr
		case err == nil && s.top > at.Number && s.next:
			continue // somebody has appended
		case err == nil && s.top <= at.Number && !d.renews():
			over := p.in.PassedOver()
			if len(over) == 0 {
				return p.passGaps(ctx, s)
			}
			err = fmt.Errorf("the log ends in commit %s, which was given up here: %w", over[0].Short(), base.ErrGone)
			if p.canRenew(ctx, err) != nil { // it has nothing better to offer
				return p.passGaps(ctx, s)
			}
		case err == nil && s.top <= at.Number:
			err = d.why
		case err == nil:
			err = fmt.Errorf("read on behind entry %d: there is none, and there is entry %d: %w", at.Number, s.top, base.ErrCorrupt)
		}
		if err := p.canRenew(ctx, err); err != nil {
			return err
		}
		if err := p.leaveDamaged(ctx, d); err != nil {
			return err
		}
		d.above(s)
		return p.renew(ctx, s, err)
	}
	return fmt.Errorf("read a log to which others append all the time: %w", base.ErrNetwork)
}

// unreadable reports whether a log could not be read on since something is missing or damaged in
// the bucket, for good as far as this device can tell. What a newer version has written is no such
// thing, nor is damage of this device.
func unreadable(err error) bool {
	_, inLog := errors.AsType[*cloudlog.UnreadableError](err)
	_, inEntry := errors.AsType[*ingest.EntryError](err)
	switch {
	case errors.Is(err, base.ErrUnsupported):
		return false
	case inLog || inEntry:
		return true
	case errors.Is(err, ErrBucketRolledBack), errors.Is(err, ErrBucketReplaced): // all else was forgotten: the log does not go with the checkpoint with which it was joined
		return true
	}
	class := bucket.ClassOf(err)
	return class == bucket.ClassNotFound || class == bucket.ClassCorrupt || errors.Is(err, base.ErrGone) || pack.Damaged(err)
}

// logSurvey is what lists of the log and the checkpoints tell.
type logSurvey struct {
	top  uint64   // the greatest number that an entry, a range or a checkpoint has
	next bool     // there is an entry behind the position
	gaps []uint64 // numbers from the floor on that neither an entry nor a range has, the first of each row of such
	// checkpoint is the greatest number of one that is not above the position.
	checkpoint uint64
	floor      format.Floor
}

// surveyLog lists the log and the checkpoints. It asks for a page of names for each 1000 entries.
func (p *Page) surveyLog(ctx context.Context) (*logSurvey, error) {
	floor, _, err := p.ses.log.LookFloor(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.keepFloor(ctx); err != nil {
		return nil, err
	}
	s := &logSurvey{floor: floor}
	at := p.ses.log.Position().Number
	covered := max(floor.Low, 1) - 1 // all up to it is there, or a gap that is noted
	err = eachListed(ctx, p.b, p.names.LogPrefix(), "", func(info bucket.Info) {
		_, from, to, _, ok := p.names.ParseName(info.Name)
		if !ok {
			return
		}
		if s.top = max(s.top, to); info.Size == 0 { // see plug
			return
		}
		s.next = s.next || from <= at+1 && at < to
		if from > covered+1 && len(s.gaps) < maxPlugs {
			s.gaps = append(s.gaps, covered+1)
		}
		covered = max(covered, to)
	})
	if err != nil {
		return nil, fmt.Errorf("list the log: %w", err)
	}
	err = eachListed(ctx, p.b, p.names.CheckpointsPrefix(), "", func(info bucket.Info) {
		if kind, number, _, _, ok := p.names.ParseName(info.Name); ok && kind == format.KindCheckpoint {
			s.top = max(s.top, number)
			if number <= at {
				s.checkpoint = max(s.checkpoint, number)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for checkpoints: %w", err)
	}
	if covered < s.checkpoint && len(s.gaps) < maxPlugs { // all behind it is missing
		s.gaps = append(s.gaps, covered+1)
	}
	return s, nil
}

// eachListed calls fn for all objects below prefix behind after, in order.
func eachListed(ctx context.Context, b bucket.Bucket, prefix, after string, fn func(bucket.Info)) error {
	for {
		infos, err := b.List(ctx, after, prefix, bucket.MaxList)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if info.Name <= after {
				return &base.CorruptError{Where: "list", Key: prefix, Want: "names in order", Got: info.Name}
			}
			after = info.Name
			fn(info)
		}
		if len(infos) < bucket.MaxList {
			return nil
		}
	}
}

// passGaps puts a floor above what is missing in a log that was read to its end all the same, from
// a checkpoint behind that on: so who stands before it goes that way too. Entries behind that
// checkpoint may build on what stood in the missing ones, which this device knows and a new one
// does not. So it writes another checkpoint, behind all, if it can. Where there is no checkpoint,
// or not the one of the floor, it may be lost, and entries may build on what it had: one is written
// when all is sent.
func (p *Page) passGaps(ctx context.Context, s *logSurvey) error {
	gaps := slices.DeleteFunc(s.gaps, func(n uint64) bool { return n > s.checkpoint })
	if len(gaps) == 0 {
		p.ses.founder = p.ses.log.Position().Number > 0 && s.checkpoint < max(s.floor.Checkpoint, 1)
		return nil
	}
	if at := p.ses.log.Position().Number; at > s.checkpoint && !p.isBare() {
		held, err := p.holds(ctx, p.store.Heads())
		if err == nil && held {
			// One that is there already is as good; it may be this one, of which nobody has said
			// so.
			if err = p.writeHistory(ctx); errors.Is(err, errTaken) {
				err = nil
			}
			s.checkpoint = at
		}
		if err != nil {
			return err
		}
	}
	if err := p.plug(ctx, gaps); err != nil {
		return err
	}
	return p.raiseFloor(ctx, s.checkpoint+1, s.checkpoint)
}

// renew lets the log begin anew, since it cannot be read on, as why says. Behind everything that is
// there an entry is put which says so; then the checkpoint of its number, with all that this page
// has; then a floor that says to begin with that. Who stands before what cannot be read passes it
// by the floor; who has passed it already reads the entry, and sends again what the checkpoint does
// not have. The same goes for entries that nobody can read any more because they build on what is
// missing.
//
// Whatever ends it before it is through leaves this page as one that cannot read the log on, so
// that the next call begins with another number.
func (p *Page) renew(ctx context.Context, s *logSurvey, why error) error {
	heads := p.store.Heads()
	p.s.o.Logger.Warn("the log cannot be read on and begins anew", "ledger", p.o.Ledger, "page", p.pageID(), "behind", s.top, "error", why)
	at, err := p.putRenewal(ctx, s.top)
	if err != nil {
		return fmt.Errorf("begin the log anew: %w", err)
	}
	treeless, err := p.withoutTrees(ctx)
	if err != nil {
		return err
	}
	size, err := p.out.WriteHistory(ctx, at, heads)
	if err == nil && size == 0 {
		err = errTaken
	}
	if err != nil {
		return fmt.Errorf("begin the log anew: %w", err)
	}
	p.s.checkpoints.Add(1)
	if err := p.plug(ctx, s.gaps); err != nil {
		return err
	}
	if err := p.raiseFloor(ctx, at.Number, at.Number); err != nil {
		return err
	}
	if err := p.in.StandAt(ctx, at, treeless); err != nil {
		return fmt.Errorf("begin the log anew: %w", err)
	}
	p.ses.toldPast, p.ses.resend = false, true
	if err := p.knowCheckpoint(ctx, checkpointRow{number: at.Number, room: p.ses.checkpoint.room, size: uint64(size)}, 0); err != nil {
		return err
	}
	if err := p.load(ctx); err != nil {
		return err
	}
	p.ses.looked, p.ses.tip = true, p.s.o.Clock.Now()
	p.ends(ctx, &p.down, nil)
	return nil
}

// canRenew returns why when the page has nothing with which the log could begin anew.
func (p *Page) canRenew(ctx context.Context, why error) error {
	if p.isBare() {
		return why
	}
	if held, err := p.holds(ctx, p.store.Heads()); err != nil || !held {
		return errors.Join(why, err)
	}
	return nil
}

// holds reports whether the trees of commits are here.
func (p *Page) holds(ctx context.Context, cs []*commit.Commit) (bool, error) {
	for _, c := range cs {
		if held, err := p.store.TreeHeld(ctx, c); err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

// isBare reports whether the page has nothing but its first commit.
func (p *Page) isBare() bool {
	heads := p.store.Heads()
	return len(heads) == 1 && heads[0].IsFirst()
}

// withoutTrees returns the unsynced commits whose trees are not here.
func (p *Page) withoutTrees(ctx context.Context) ([]commit.ID, error) {
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for what is not synced: %w", err)
	}
	return p.treeless(ctx, unsynced, len(unsynced))
}

// putRenewal puts the entry with which the log begins anew behind entry top, and returns the
// position of it. Errors: errTaken when another device has put one there.
func (p *Page) putRenewal(ctx context.Context, top uint64) (format.Position, error) {
	if err := p.s.checkKeys(ctx, p.b, proofForWriting, p.ses.log.Position().Number == 0); err != nil {
		return format.Position{}, err
	}
	if err := p.announce(ctx); err != nil {
		return format.Position{}, err
	}
	previous, err := p.hashAt(ctx, top)
	if err != nil {
		return format.Position{}, err
	}
	o, err := p.out.Announce(ctx, &format.Body{Renewed: true})
	if err != nil {
		return format.Position{}, err
	}
	number := top + 1
	stored, hash, err := format.SealEntry(p.s.sealer, p.names, number, previous, o.Body)
	if err != nil {
		return format.Position{}, err
	}
	at := format.Position{Bucket: format.ID(p.s.o.Keyring.BucketID()), Number: number, Hash: hash}
	err = p.b.PutIfAbsent(ctx, p.names.Entry(number), int64(len(stored)), bytes.NewReader(stored))
	switch {
	case err == nil:
		return at, nil
	case !bucket.Ambiguous(err) && !errors.Is(err, bucket.ErrExists):
		return format.Position{}, err
	}
	there, readErr := readAll(ctx, p.b, p.names.Entry(number), format.MaxEntryBytes)
	switch {
	case readErr == nil && bytes.Equal(there, stored):
		return at, nil
	case readErr == nil || errors.Is(readErr, base.ErrCorrupt), errors.Is(readErr, base.ErrNotFound): // nobody knows what became of it: another number will tell
		return format.Position{}, errTaken
	}
	return format.Position{}, errors.Join(err, readErr)
}

// hashAt returns the hash of an entry for who puts one behind it. Nobody who could check it has
// read an entry that is damaged or not there: then any will do.
func (p *Page) hashAt(ctx context.Context, number uint64) (format.Hash, error) {
	if at := p.ses.log.Position(); number == at.Number {
		return at.Hash, nil
	}
	stored, err := readAll(ctx, p.b, p.names.Entry(number), format.MaxEntryBytes)
	if err == nil {
		var hash format.Hash
		if _, hash, err = format.OpenHeader(p.s.sealer, p.names, number, stored); err == nil {
			return hash, nil
		}
	}
	if errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) {
		return format.Hash(sha256.Sum256([]byte(p.names.Entry(number)))), nil
	}
	return format.Hash{}, err
}

// raiseFloor puts a floor that keeps the numbers from low on, with a checkpoint to begin with,
// unless there is a higher one.
func (p *Page) raiseFloor(ctx context.Context, low, checkpoint uint64) error {
	for range maxFloors {
		floor, _, err := p.ses.log.LookFloor(ctx)
		if err != nil {
			return err
		}
		if floor.Deleted {
			return ErrDeleted
		}
		if floor.Low >= low {
			return p.keepFloor(ctx)
		}
		if err := p.putFloor(ctx, format.Floor{K: floor.K + 1, Low: low, Checkpoint: checkpoint}); err != nil {
			return err
		}
	}
	return fmt.Errorf("put a floor: %w", bucket.ErrExists)
}

// plug puts objects without content at numbers that are missing in the log, before a floor is put
// above them: so that who stands before one does not take it for the end, and puts an entry there
// that nobody reads.
func (p *Page) plug(ctx context.Context, numbers []uint64) error {
	for _, n := range numbers {
		err := p.b.PutIfAbsent(ctx, p.names.Entry(n), 0, bytes.NewReader(nil))
		if err != nil && !errors.Is(err, bucket.ErrExists) {
			return fmt.Errorf("keep entry %d from being taken: %w", n, err)
		}
	}
	return nil
}
