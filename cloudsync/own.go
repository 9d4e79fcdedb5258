package cloudsync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/protocol"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// metadataOwn is the type of the row of ownRow.
const metadataOwn = "own"

// maxHeads is how many heads of entries are read rather than a list of names: a list costs as much
// as twelve gets.
const maxHeads = 12

// ownRow is the position behind which this device has put the first entry of its own that is not
// proved to stand behind all that it should. That it was put, and is there, proves nothing: a
// bucket that went back to an older state takes an entry of any number, and then what it has lost
// is missing before it. As a row: number 8, hash 32.
type ownRow struct {
	number uint64 // 0: there is none
	hash   format.Hash
}

func (o ownRow) encode() []byte {
	return append(binary.BigEndian.AppendUint64(nil, o.number), o.hash[:]...)
}

func parseOwn(b []byte) (o ownRow) {
	if len(b) == 8+len(o.hash) {
		o = ownRow{binary.BigEndian.Uint64(b), format.Hash(b[8:])}
	}
	return o
}

// ownAppended returns the row that goes with an entry of this device, put behind the present
// position, if it is a new one.
func (p *Page) ownAppended() []storage.Metadata {
	before := p.ses.log.Position()
	if p.ses.own.number > 0 || before.Number == 0 {
		return nil
	}
	return []storage.Metadata{{Type: metadataOwn, Value: ownRow{before.Number, before.Hash}.encode()}}
}

// noteOwn takes note of the row once it is durable.
func (p *Page) noteOwn(rows []storage.Metadata) {
	if len(rows) > 0 {
		p.ses.own, p.ses.ownSince = parseOwn(rows[0].Value), p.s.o.Clock.Now()
	}
}

// loadOwn takes the row that the store has. The one of what this session has proved is left there.
func (p *Page) loadOwn(row []byte, at uint64) {
	own := parseOwn(row)
	if own.number >= at || own.number < p.ses.proved {
		own = ownRow{}
	}
	if own != p.ses.own {
		p.ses.own, p.ses.ownSince = own, time.Time{}
	}
}

// proveOwn looks whether all that this device has put entries behind is still there, when an hour
// has passed since it put the first of them or another session has. It costs a get for each entry
// since and one more, or a list when these are many. Errors: ErrBucketRolledBack,
// ErrBucketReplaced, those of the bucket.
func (p *Page) proveOwn(ctx context.Context) error {
	own, at := p.ses.own, p.ses.log.Position().Number
	age := p.s.o.Clock.Now().Sub(p.ses.ownSince)
	if own.number == 0 || !p.ses.ownSince.IsZero() && age >= 0 && age < proofForWriting {
		return nil
	}
	if floor, _ := p.ses.log.Floor(); own.number >= floor.Low && own.number < at {
		found, err := p.flawBehind(ctx, own, at)
		if err == nil && found.number > 0 {
			err = p.explainFlaw(ctx, found, at)
		}
		if err != nil {
			return fmt.Errorf("verify what the entries of this device stand behind: %w", err)
		}
	}
	p.ses.own, p.ses.proved = ownRow{}, at
	return nil
}

// flaw is a number of the log at which the bucket does not have what this device has put entries
// behind.
type flaw struct {
	number uint64 // 0: there is none
	other  bool   // there is another entry
}

// flawBehind returns the lowest flaw from own to at, but for entries of which the heads were not
// compared. That at is the right entry is proved by the log itself: its head tells whether the one
// before it is.
func (p *Page) flawBehind(ctx context.Context, own ownRow, at uint64) (flaw, error) {
	if at-own.number > maxHeads {
		return p.listedFlaw(ctx, own, at)
	}
	n := at - own.number + 1
	headers, hashes := make([]format.Header, n), make([]format.Hash, n)
	err := inParallel(ctx, maxHeads+1, int(n), func(ctx context.Context, i int) (err error) {
		headers[i], hashes[i], err = p.readHead(ctx, own.number+uint64(i))
		return err
	})
	if err != nil {
		return flaw{}, err
	}
	want, known := own.hash, true
	for i, h := range headers {
		number := own.number + uint64(i)
		switch {
		case h.Number == 0 && number == at: // it is in a range
		case h.Number == 0:
			return flaw{number: number}, nil
		case badHead(h):
			known = false
			continue
		case i == 0 && hashes[0] != want:
			return flaw{number: number, other: true}, nil
		case i > 0 && known && h.Previous != want:
			return flaw{number: number - 1, other: true}, nil
		}
		want, known = hashes[i], true
	}
	return flaw{}, nil
}

// badHead reports whether the head of an entry is there and damaged. That is for those to tell who
// have not read it.
func badHead(h format.Header) bool { return h.ID.IsZero() }

// readHead reads the head of an entry. A zero number says that there is none, a zero id that it is
// damaged.
func (p *Page) readHead(ctx context.Context, number uint64) (h format.Header, hash format.Hash, err error) {
	o, err := p.b.Get(ctx, p.names.Entry(number), 0, format.HeaderBytes)
	if errors.Is(err, base.ErrNotFound) {
		return h, hash, nil
	}
	if err != nil {
		return h, hash, err
	}
	defer o.Body.Close()
	if o.Size == 0 { // see plug
		return h, hash, nil
	}
	stored := make([]byte, max(0, min(o.Size, format.HeaderBytes)))
	if _, err := io.ReadFull(o.Body, stored); err != nil {
		return h, hash, fmt.Errorf("read %s: %w", p.names.Entry(number), err)
	}
	if h, hash, err = format.OpenHeader(p.s.sealer, p.names, number, stored); err != nil {
		return format.Header{Number: number}, hash, nil
	}
	return h, hash, nil
}

// listedFlaw is flawBehind for many entries: it sees that they are there, and that the first is the
// right one.
func (p *Page) listedFlaw(ctx context.Context, own ownRow, at uint64) (flaw, error) {
	h, hash, err := p.readHead(ctx, own.number)
	switch {
	case err != nil:
		return flaw{}, err
	case h.Number == 0:
		return flaw{number: own.number}, nil
	case !badHead(h) && hash != own.hash:
		return flaw{number: own.number, other: true}, nil
	}
	covered := own.number
	for after := p.names.Entry(covered); covered < at; {
		infos, err := p.b.List(ctx, after, p.names.LogPrefix(), bucket.MaxList)
		if err != nil {
			return flaw{}, fmt.Errorf("list the log: %w", err)
		}
		for _, info := range infos {
			if info.Name <= after {
				return flaw{}, &base.CorruptError{Where: "list", Key: p.names.LogPrefix(), Want: "names in order", Got: info.Name}
			}
			after = info.Name
			_, from, to, _, ok := p.names.ParseName(info.Name)
			switch {
			case !ok || info.Size == 0 || to <= covered:
			case from > covered+1:
				return flaw{number: covered + 1}, nil
			default:
				covered = to
			}
		}
		if len(infos) < bucket.MaxList && covered < at {
			return flaw{number: covered + 1}, nil
		}
	}
	return flaw{}, nil
}

// explainFlaw returns nil when a floor has passed a flaw, or a range has the entry that is missing.
func (p *Page) explainFlaw(ctx context.Context, f flaw, at uint64) error {
	for _, span := range []uint64{protocol.SpanSmall, protocol.SpanLarge, protocol.SpanLargest} {
		if f.other {
			break
		}
		from, to := protocol.RangeOf(f.number, span)
		o, err := p.b.Get(ctx, p.names.Range(from, to), 0, 0)
		if err == nil {
			return o.Body.Close()
		}
		if !errors.Is(err, base.ErrNotFound) {
			return err
		}
	}
	floor, _, err := p.ses.log.LookFloor(ctx)
	if err != nil || f.number < floor.Low {
		return err
	}
	name := p.names.Entry(f.number)
	if f.other {
		return fmt.Errorf("%s is another entry than was there when this device put others behind it: %w", name, ErrBucketReplaced)
	}
	return fmt.Errorf("%s is not there any more, and this device has put entries up to %d behind it: %w", name, at, ErrBucketRolledBack)
}
