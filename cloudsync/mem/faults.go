package mem

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// Faults has the probabilities of faults, from 0 to 1, each drawn for every request to which it
// applies. Of the first four, which answer with an error, the first that hits wins, in this order.
type Faults struct {
	// Conflict answers 409 and does nothing.
	Conflict float64
	// TooMany answers 429 and does nothing.
	TooMany float64
	// Unavailable answers 500, 502, 503 or 504 and does nothing. For a put or delete the answer is
	// ambiguous.
	Unavailable float64
	// Refused answers a put with 412 and does nothing, though the name may be free: as if another's
	// object had existed and is gone.
	Refused float64
	// LostAnswer carries out a put or delete, and then fails with an ambiguous error.
	LostAnswer float64
	// CutBody ends a body with an error after some of its bytes.
	CutBody float64
	// WrongByte changes one byte of a body.
	WrongByte float64
	// SlowBody gives a body in eight parts, and makes the reader wait for Delay before each.
	SlowBody float64
	// Delay is by the clock of the bucket; 0: one second.
	Delay time.Duration
	// WriteInterval answers a put that would store, or a delete that would remove, with 429 if the
	// name was changed less than this ago. 0: never; real buckets have about a second.
	WriteInterval time.Duration
}

// SetFaults replaces the faults from now on.
func (b *Bucket) SetFaults(f Faults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = f
}

// SetBefore sets a function that is called for every request, with no lock held. If it returns an
// error, nothing is done and the request fails with that error, made an *bucket.Error if it is
// none. name is the prefix for a list. nil calls nothing. So a test can remove the network
// (base.ErrNetwork), revoke rights (fs.ErrPermission), fill the quota (base.ErrNoSpace), or act
// just before a request.
func (b *Bucket) SetBefore(before func(op bucket.Op, name string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = before
}

// fate has the faults of one request.
type fate struct {
	lost, cut, wrong, slow bool
	delay, interval        time.Duration
	at                     float64 // position in the body, from 0 to 1
	bit                    int
}

// begin draws the faults of a request, or fails it.
func (b *Bucket) begin(op bucket.Op, name string) (fate, error) {
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	if before != nil {
		if err := before(op, name); err != nil {
			return fate{}, bucket.NewError(context.Background(), op, name, false, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	rng := b.drawLocked(call{op, name})
	hit := func(p float64) bool { return p > 0 && rng.Float64() < p }
	write := op == bucket.OpPut || op == bucket.OpDelete
	status := 0
	switch f := &b.faults; {
	case hit(f.Conflict):
		status = http.StatusConflict
	case hit(f.TooMany):
		status = http.StatusTooManyRequests
	case hit(f.Unavailable):
		status = [...]int{500, 502, 503, 504}[rng.IntN(4)]
	case op == bucket.OpPut && hit(f.Refused):
		status = http.StatusPreconditionFailed
	}
	if status != 0 {
		return fate{}, bucket.NewStatusError(op, name, status, nil)
	}
	t := fate{delay: b.faults.Delay, interval: b.faults.WriteInterval}
	if t.delay <= 0 {
		t.delay = time.Second
	}
	if write {
		t.lost = hit(b.faults.LostAnswer)
	}
	if op == bucket.OpGet {
		t.cut, t.wrong, t.slow = hit(b.faults.CutBody), hit(b.faults.WrongByte), hit(b.faults.SlowBody)
		if t.cut || t.wrong {
			t.at, t.bit = rng.Float64(), rng.IntN(8)
		}
	}
	return t, nil
}

// drawLocked returns the random source for the next request of a kind. It follows from the number
// of such requests before, and not from requests for other names, which may be concurrent.
func (b *Bucket) drawLocked(c call) *rand.Rand {
	n := b.calls[c]
	b.calls[c]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %s", n, c.op, c.name)
	return rand.New(rand.NewPCG(b.seed, h.Sum64()))
}

func (b *Bucket) body(ctx context.Context, name string, content []byte, f fate) io.ReadCloser {
	y := &body{ctx: ctx, b: b, name: name, content: content, fate: f, part: len(content)}
	at := int(f.at * float64(len(content)))
	if f.wrong && len(content) > 0 {
		y.content = append([]byte{}, content...)
		y.content[at] ^= 1 << f.bit
	}
	if y.cut = f.cut && len(content) > 0; y.cut {
		y.content = y.content[:at]
	}
	if f.slow {
		y.part = len(content)/8 + 1
	}
	return y
}

type body struct {
	ctx     context.Context // that of Get, which bounds the body
	b       *Bucket
	name    string
	content []byte // the content not read yet
	fate    fate
	cut     bool
	part    int // most bytes before the next wait
	ready   int // bytes that need no wait
	closed  bool
}

var errCut = fmt.Errorf("connection lost within the body: %w", io.ErrUnexpectedEOF)

// Read implements io.Reader.
func (y *body) Read(p []byte) (int, error) {
	fail := func(err error) error { return bucket.NewError(y.ctx, bucket.OpGet, y.name, false, err) }
	switch {
	case y.closed:
		return 0, fail(errors.New("read of a closed body"))
	case y.ctx.Err() != nil:
		return 0, fail(context.Cause(y.ctx))
	case len(y.content) == 0 && y.cut:
		return 0, fail(errCut)
	case len(y.content) == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	if y.ready == 0 {
		if y.fate.slow {
			ch, release := y.b.clock.After(y.fate.delay)
			defer release()
			select {
			case <-ch:
			case <-y.ctx.Done():
				return 0, fail(context.Cause(y.ctx))
			}
		}
		y.ready = min(y.part, len(y.content))
	}
	n := copy(p, y.content[:y.ready])
	y.content, y.ready = y.content[n:], y.ready-n
	return n, nil
}

// Close implements io.Closer.
func (y *body) Close() error {
	y.closed = true
	return nil
}
