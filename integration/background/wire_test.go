package background_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

var (
	errRoute = fmt.Errorf("no route: %w", base.ErrNetwork)
	errDead  = errors.New("the process was killed")
	errLost  = errors.New("connection lost before the answer")
)

// caller is the key of a context under which a request is made for somebody who called, not by the
// background.
type caller struct{}

// request is one that waits to be let through.
type request struct {
	n      int // in the order in which they came
	run    *run
	ledger string // of the page; "" when it is about no page, or all
	op     bucket.Op
	name   string
	called bool
	since  time.Time
	answer chan answer
}

func (r *request) String() string {
	who := "background"
	if r.called {
		who = "caller"
	}
	return fmt.Sprintf("device %d %s: %s %s %s", r.run.d.index, who, r.op, r.ledger, r.name[strings.IndexByte(r.name, '/')+1:])
}

// answer is what befalls a request.
type answer struct {
	err  error // instead of it
	lost bool  // it is carried out, and then this
}

// wire is the way from one run of a device to the bucket.
type wire struct{ run *run }

var _ bucket.Bucket = wire{}

// ask waits until the request is let through.
func (w wire) ask(ctx context.Context, op bucket.Op, name string) answer {
	world := w.run.d.w
	r := &request{run: w.run, op: op, name: name, called: ctx.Value(caller{}) != nil, since: world.now(), answer: make(chan answer, 1)}
	r.ledger = world.ledgerOf(name)
	if !world.arrives(ctx, r) {
		return answer{err: errDead}
	}
	select {
	case a := <-r.answer:
		return a
	case <-ctx.Done():
		world.leaves(r)
		return answer{err: context.Cause(ctx)}
	}
}

// meet draws what befalls a request that is let through.
func (w *world) meet(r *request) (a answer) {
	d := r.run.d
	write := r.op == bucket.OpPut || r.op == bucket.OpDelete
	switch {
	case d.offline:
		a.err = errRoute
	case w.full && r.op == bucket.OpPut:
		a.err = base.ErrNoSpace
	case d.denied && write:
		a.err = fs.ErrPermission
	case w.faults > 0 && w.rng.Float64() < w.faults:
		w.trouble(d)
		status := [...]int{http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError, 0, 0}[w.rng.IntN(6)]
		if status != 0 {
			a.err = bucket.NewStatusError(r.op, r.name, status, nil)
		} else if a.lost = write; !write {
			a.err = errRoute
		}
	}
	return a
}

func (w wire) ends(ctx context.Context, op bucket.Op, name string, a answer, err error) error {
	if err == nil && a.lost {
		return &bucket.Error{Op: op, Name: name, Class: bucket.ClassRetryable, Ambiguous: true, Err: errLost}
	}
	return err
}

// PutIfAbsent implements bucket.Bucket.
func (w wire) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	a := w.ask(ctx, bucket.OpPut, name)
	if a.err != nil {
		return bucket.NewError(ctx, bucket.OpPut, name, false, a.err)
	}
	return w.ends(ctx, bucket.OpPut, name, a, w.run.d.w.b.PutIfAbsent(ctx, name, size, content))
}

// Get implements bucket.Bucket.
func (w wire) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	a := w.ask(ctx, bucket.OpGet, name)
	if a.err != nil {
		return bucket.Object{}, bucket.NewError(ctx, bucket.OpGet, name, false, a.err)
	}
	return w.run.d.w.b.Get(ctx, name, off, n)
}

// List implements bucket.Bucket.
func (w wire) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	a := w.ask(ctx, bucket.OpList, prefix)
	if a.err != nil {
		return nil, bucket.NewError(ctx, bucket.OpList, prefix, false, a.err)
	}
	return w.run.d.w.b.List(ctx, after, prefix, limit)
}

// Delete implements bucket.Bucket.
func (w wire) Delete(ctx context.Context, name string) error {
	a := w.ask(ctx, bucket.OpDelete, name)
	if a.err != nil {
		return bucket.NewError(ctx, bucket.OpDelete, name, false, a.err)
	}
	return w.ends(ctx, bucket.OpDelete, name, a, w.run.d.w.b.Delete(ctx, name))
}

// String implements bucket.Bucket.
func (w wire) String() string { return "wire" }
