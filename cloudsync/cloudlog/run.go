package cloudlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/protocol"
	"github.com/ledgerd/ledger/internal/base"
)

// Pauses between puts: the first one, and the longest. Each further one is twice as long, half of
// it by chance.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 10 * time.Second
)

// call is the state of one call.
type call struct {
	body   *format.SealedBody
	apply  Apply
	settle Settle

	last     *format.Entry   // read last
	accepted []*format.Entry // to be applied
	span     rangeInHand
	ahead    map[uint64]fetched
	put      sealedEntry
	badErr   error // why the last bad entry is bad
	putErr   error // why the last put was not confirmed
	result   Appended
}

// sealedEntry is the body sealed for a number: a put that is made again puts the same bytes.
type sealedEntry struct {
	number   uint64
	previous format.Hash
	stored   []byte
	hash     format.Hash
}

// run carries out one operation of the machine.
func (l *Log) run(ctx context.Context, what string, ev protocol.Event, body *format.SealedBody, apply Apply, settle Settle) (Appended, error) {
	l.call = call{body: body, apply: apply, settle: settle}
	defer func() { l.call = call{} }()
	proofs := l.machine.Proofs()
	if err := l.carryOut(ctx, ev); err != nil {
		return Appended{}, fmt.Errorf("%s: %w", what, err)
	}
	if l.machine.Proofs() > proofs {
		l.proved = l.o.Clock.Now()
	}
	return l.result, nil
}

func (l *Log) carryOut(ctx context.Context, ev protocol.Event) error {
	for {
		if err := ctx.Err(); err != nil {
			l.machine.Step(protocol.EffectFailed{})
			return context.Cause(ctx)
		}
		effects := l.machine.Step(ev)
		for _, e := range effects {
			if d, ok := e.(protocol.Done); ok {
				return l.done(d)
			}
			var err error
			if ev, err = l.effect(ctx, e); err != nil {
				l.machine.Step(protocol.EffectFailed{})
				return err
			}
		}
	}
}

// effect carries out one effect and returns what answers it.
func (l *Log) effect(ctx context.Context, e protocol.Effect) (protocol.Event, error) {
	switch e := e.(type) {
	case protocol.GetEntry:
		return l.getEntry(ctx, e)
	case protocol.GetFloor:
		return l.getFloor(ctx, e.K)
	case protocol.Put:
		return l.putEntry(ctx, e)
	case protocol.Wait:
		return nil, l.pause(ctx, e.Tries)
	case protocol.Accept:
		l.accepted = append(l.accepted, l.last)
		return nil, nil
	case protocol.Apply:
		entries := l.accepted
		l.accepted = nil
		return protocol.Applied{}, l.apply(ctx, entries, l.position(e.At))
	case protocol.Settle:
		l.result = Appended{Position: l.position(e.At), Created: e.Created.Time(), Stored: l.last.Stored, Lost: e.Lost}
		return protocol.Settled{}, l.settle(ctx, l.result, l.last)
	}
	return nil, fmt.Errorf("carry out %T: %w", e, base.ErrUnsupported)
}

// done returns the error that stands for an outcome.
func (l *Log) done(d protocol.Done) error {
	name := l.o.Names.Entry(d.Number)
	switch d.Outcome {
	case protocol.Completed:
		return nil
	case protocol.Landed:
		l.result = Appended{Position: l.position(d.At), Created: d.Created.Time()}
		return nil
	case protocol.Remake:
		return ErrRemake
	case protocol.RolledBack:
		return ErrRolledBack
	case protocol.Replaced:
		return ErrReplaced
	case protocol.Passed:
		return ErrPassed
	case protocol.Deleted:
		return ErrDeleted
	case protocol.Busy:
		return l.busy(name)
	case protocol.Bad:
		return &UnreadableError{d.Number, l.badErr}
	case protocol.Broken:
		return &UnreadableError{d.Number, corrupt(name, "the hash of the entry before it", "another hash")}
	case protocol.Hole:
		return &UnreadableError{d.Number, corrupt(name, "an entry, as there is a later one", "nothing")}
	}
	return fmt.Errorf("log operation: %w", base.ErrInvalid)
}

// corrupt says what is wrong with an object. Its name, which is longer than what a CorruptError
// shows, stands before.
func corrupt(name, want, got string) error {
	return fmt.Errorf("read object %s: %w", name, &base.CorruptError{Where: "log", Key: name[strings.LastIndexByte(name, '/')+1:], Want: want, Got: got})
}

func (l *Log) busy(name string) error {
	if l.putErr != nil && errors.Is(l.putErr, base.ErrNetwork) {
		return l.putErr
	}
	return fmt.Errorf("put entry %s again and again: %w", name, base.ErrNetwork)
}

// pause waits after a number of tries.
func (l *Log) pause(ctx context.Context, tries int) error {
	bound := firstPause
	for i := 1; i < tries && bound < mostPause; i++ {
		bound *= 2
	}
	bound = min(bound, mostPause)
	half := uint64(bound / 2)
	ch, release := l.o.Clock.After(time.Duration(half + l.o.Jitter()%half))
	defer release()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// putEntry puts the body at a number. Only a confirmed put is told as stored; trouble for which
// waiting does not help is an error.
func (l *Log) putEntry(ctx context.Context, e protocol.Put) (protocol.Event, error) {
	name := l.o.Names.Entry(e.Number)
	if l.put.stored == nil || l.put.number != e.Number || l.put.previous != format.Hash(e.Previous) {
		stored, hash, err := format.SealEntry(l.o.Sealer, l.o.Names, e.Number, format.Hash(e.Previous), l.body)
		if err != nil {
			return nil, err
		}
		l.put = sealedEntry{e.Number, format.Hash(e.Previous), stored, hash}
	}
	var created time.Time
	err := l.o.Bucket.PutIfAbsent(bucket.WithCreated(ctx, &created), name, int64(len(l.put.stored)), bytes.NewReader(l.put.stored))
	if err != nil {
		if !mayLook(err) || ctx.Err() != nil {
			return nil, err
		}
		l.putErr = err
		return protocol.PutAnswered{}, nil
	}
	l.last = &format.Entry{Header: format.Header{Number: e.Number, ID: l.body.ID, Previous: l.put.previous}, Hash: l.put.hash,
		Body: l.body.Body, KeyIndex: l.body.KeyIndex, Stored: len(l.put.stored), Created: created}
	return protocol.PutAnswered{Stored: true, Created: protocol.TimeOf(created), Hash: protocol.Hash(l.put.hash)}, nil
}

// mayLook reports whether a look at the name can tell what became of a put that failed with err.
func mayLook(err error) bool {
	switch bucket.ClassOf(err) {
	case bucket.ClassExists, bucket.ClassBusy:
		return true
	case bucket.ClassAmbiguous, bucket.ClassRetryable, bucket.ClassCorrupt, bucket.ClassOther:
		return bucket.Ambiguous(err)
	}
	return false
}
