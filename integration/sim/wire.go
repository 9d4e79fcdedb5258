package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

const (
	// requestTime is the duration of a request, and timeOut the duration of one that times out.
	requestTime = 20 * time.Millisecond
	timeOut     = 30 * time.Second
	// brokenTime is the duration of a cancelled call. The seed does not determine how many
	// concurrent requests it still made. For the same reason these are not counted.
	brokenTime = time.Hour
)

var (
	// errStopped is the cause when the context of a call ends.
	errStopped = errors.New("the caller has left")
	errNoRoute = fmt.Errorf("no route: %w", base.ErrNetwork)
	errLost    = errors.New("connection lost")
)

// wire connects a device to the bucket. The faults of a request follow from the seed of the
// history, the device, the call, the kind of request, the name of the object, and how often the
// call has made this request. So concurrent requests need no order.
type wire struct {
	d *device
	b *mem.Bucket

	mu     sync.Mutex
	begun  int                     // calls; guarded by mu, as all below
	seen   map[string]uint64       // how often each request was made since the call began
	asked  int                     // requests since the call began
	stop   int                     // at which request the context of the call ends; 0: at none
	cancel context.CancelCauseFunc // ends it
	cut    int                     // at which request the power fails; 0: at none
	after  bool                    // the power fails after the request is carried out
	flight bool                    // the request at which the call ended also served others, and may go on
	tally  tally
}

var _ bucket.Bucket = (*wire)(nil)

// tally counts requests: all of a kind; of these the gets of packs, the gets of runs of
// checkpoints, and the puts of entries, packs and checkpoints; and requests that a call repeated.
type tally struct{ puts, gets, lists, deletes, read, runs, entries, packs, checkpoints, again int }

func (t tally) minus(o tally) tally {
	return tally{t.puts - o.puts, t.gets - o.gets, t.lists - o.lists, t.deletes - o.deletes, t.read - o.read, t.runs - o.runs, t.entries - o.entries, t.packs - o.packs,
		t.checkpoints - o.checkpoints, t.again - o.again}
}

// total counts all requests.
func (t tally) total() int { return t.puts + t.gets + t.lists + t.deletes }

func (t *tally) add(op bucket.Op, name string) {
	switch op {
	case bucket.OpPut:
		t.puts++
		switch {
		case strings.Contains(name, "/log/"):
			t.entries++
		case strings.Contains(name, "/packs/"):
			t.packs++
		case strings.Contains(name, "/checkpoints/"):
			t.checkpoints++
		}
	case bucket.OpGet:
		t.gets++
		switch {
		case strings.Contains(name, "/packs/"):
			t.read++
		case strings.Contains(name, "/checkpoints/"):
			t.runs++
		}
	case bucket.OpList:
		t.lists++
	case bucket.OpDelete:
		t.deletes++
	}
}

// begins is called before a call. It restarts the count of requests.
func (w *wire) begins(stop int, cancel context.CancelCauseFunc, cut int, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun++
	clear(w.seen)
	w.asked, w.flight = 0, false
	w.stop, w.cancel, w.cut, w.after = stop, cancel, cut, after
}

// counted returns the counts so far.
func (w *wire) counted() tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally
}

// forgo resets the counts to an earlier state.
func (w *wire) forgo(then tally) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally = then
}

// fate is the outcome of a request.
type fate struct {
	err             error // returned instead of carrying out the request
	crash           bool  // the power fails after the request is carried out
	lost            bool
	cut, flip, slow bool
	at              float64
	bit             int
}

// meet returns the outcome of a request.
func (w *wire) meet(ctx context.Context, op bucket.Op, name string) (f fate) {
	fail := func(err error) fate { return fate{err: bucket.NewError(ctx, op, name, false, err)} }
	if ctx.Err() != nil {
		return fail(context.Cause(ctx))
	}
	if w.d.dark() {
		return fail(errCrash)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.d.w.h.Sweep && (w.asked == 0 || op == bucket.OpPut && strings.Contains(name, "/log/")) { // other requests run concurrently, in any order
		w.d.sweepBeside()
	}
	w.asked++
	if w.stop > 0 && w.asked >= w.stop {
		w.cancel(errStopped)
		w.flight = w.flight || ctx.Err() == nil
		return fail(errStopped)
	}
	w.d.w.now.Add(int64(requestTime))
	w.tally.add(op, name)
	if w.cut > 0 && w.asked == w.cut {
		if !w.after {
			w.d.cutPower()
			return fail(errCrash)
		}
		f.crash = true
	}
	key := op.String() + " " + name
	nth := w.seen[key]
	w.seen[key]++
	if nth > 0 {
		w.tally.again++
	}
	if w.d.link.offline {
		return fail(errNoRoute)
	}
	w.draw(op, name, nth, &f)
	return f
}

// draw draws faults. They are the faults of package mem, in its order.
func (w *wire) draw(op bucket.Op, name string, nth uint64, f *fate) {
	o := &w.d.w.cloud.faults
	if *o == (mem.Faults{}) {
		return
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %d %s %s %d", w.d.w.h.Seed, w.d.index, w.begun, op, name, nth)
	rng := rand.New(rand.NewPCG(h.Sum64(), 0xfa7e))
	hit := func(p float64) bool { return rng.Float64() < p }
	status := 0
	switch write := op == bucket.OpPut || op == bucket.OpDelete; {
	case hit(o.Conflict):
		status = http.StatusConflict
	case hit(o.TooMany):
		status = http.StatusTooManyRequests
	case hit(o.Unavailable):
		if status = [...]int{500, 502, 503, 504}[rng.IntN(4)]; status == http.StatusGatewayTimeout {
			w.d.w.now.Add(int64(timeOut))
		}
	case op == bucket.OpPut && strings.Contains(name, "/log/") && hit(o.Refused): // only there the name may have been another's
		status = http.StatusPreconditionFailed
	case write && hit(o.LostAnswer):
		f.lost = true
	case op == bucket.OpGet:
		f.cut, f.flip, f.slow = hit(o.CutBody), hit(o.WrongByte), hit(o.SlowBody)
		f.at, f.bit = rng.Float64(), rng.IntN(8)
	}
	if status != 0 {
		f.err = bucket.NewStatusError(op, name, status, nil)
	}
}

// ended returns the answer to a write that has been carried out.
func (w *wire) ended(ctx context.Context, op bucket.Op, name string, f *fate, err error) error {
	switch {
	case f.crash:
		w.d.cutPower()
		return bucket.NewError(ctx, op, name, false, errCrash)
	case err == nil && f.lost:
		return &bucket.Error{Op: op, Name: name, Class: bucket.ClassRetryable, Ambiguous: true, Err: errLost}
	}
	return err
}

// PutIfAbsent implements bucket.Bucket.
func (w *wire) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	f := w.meet(ctx, bucket.OpPut, name)
	if f.err != nil {
		return f.err
	}
	var created time.Time
	err := w.b.PutIfAbsent(bucket.WithCreated(ctx, &created), name, size, content)
	if err = w.ended(ctx, bucket.OpPut, name, &f, err); err == nil {
		bucket.ReportCreated(ctx, created)
	}
	return err
}

// Get implements bucket.Bucket.
func (w *wire) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	f := w.meet(ctx, bucket.OpGet, name)
	if f.err != nil {
		return bucket.Object{}, f.err
	}
	o, err := w.b.Get(ctx, name, off, n)
	if err = w.ended(ctx, bucket.OpGet, name, &f, err); err != nil || !f.cut && !f.flip && !f.slow {
		return o, err
	}
	content, err := io.ReadAll(o.Body)
	if err != nil {
		return bucket.Object{}, err
	}
	at := int(f.at * float64(len(content)))
	if f.slow {
		w.d.w.now.Add(int64(8 * time.Second))
	}
	if f.flip && len(content) > 0 {
		content[at] ^= 1 << f.bit // it is a copy
	}
	end := io.EOF
	if f.cut && len(content) > 0 {
		content = content[:at]
		end = &bucket.Error{Op: bucket.OpGet, Name: name, Class: bucket.ClassRetryable, Err: errLost}
	}
	o.Body = &brokenBody{content: content, end: end}
	return o, nil
}

// brokenBody returns content, and then an error.
type brokenBody struct {
	content []byte
	end     error
}

// Read implements io.Reader.
func (b *brokenBody) Read(p []byte) (int, error) {
	if len(b.content) == 0 {
		return 0, b.end
	}
	n := copy(p, b.content)
	b.content = b.content[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *brokenBody) Close() error { return nil }

// List implements bucket.Bucket.
func (w *wire) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	f := w.meet(ctx, bucket.OpList, prefix)
	if f.err != nil {
		return nil, f.err
	}
	infos, err := w.b.List(ctx, after, prefix, limit)
	return infos, w.ended(ctx, bucket.OpList, prefix, &f, err)
}

// Delete implements bucket.Bucket.
func (w *wire) Delete(ctx context.Context, name string) error {
	f := w.meet(ctx, bucket.OpDelete, name)
	if f.err != nil {
		return f.err
	}
	return w.ended(ctx, bucket.OpDelete, name, &f, w.b.Delete(ctx, name))
}

// String returns the URL of the bucket.
func (w *wire) String() string { return w.b.String() }
