package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// crashWorld is a repository on a file system that is crashed after every change, and what was
// acknowledged.
type crashWorld struct {
	t   *testing.T
	mem *vfstest.Mem

	mu     sync.Mutex
	acked  map[[3]string]string // ledger, page, key -> value; guarded by mu
	trying [3]string            // what is being written and may be there or not; guarded by mu

	op, recoveries int
}

func (w *crashWorld) open(fs vfs.FS) (*Repository, error) {
	return openFiles(context.Background(), fs, Options{CacheBytes: 1 << 20})
}

// boundary crashes: nothing kept, everything kept, two mixtures.
func (w *crashWorld) boundary(op vfstest.Op) {
	if w.t.Failed() {
		return
	}
	w.op++
	for v, keep := range []func() float64{vfstest.KeepNone, vfstest.KeepAll, vfstest.KeepSome(uint64(w.op)), vfstest.KeepSome(uint64(w.op) << 20)} {
		mem := w.mem.CrashClone(keep)
		w.recoveries++
		err := w.recovered(mem)
		if err == nil && v > 1 { // whoever is killed as he recovers leaves a mixture, too
			err = w.recovered(mem.CrashClone(vfstest.KeepNone))
		}
		if err != nil {
			w.t.Errorf("operation %d (%s), crash %d: %v", w.op, op, v, err)
			return
		}
	}
}

func (w *crashWorld) recovered(mem *vfstest.Mem) (err error) {
	ctx := context.Background()
	r, err := w.open(mem)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, want := range w.acked {
		p, err := r.Page(ctx, at[0], at[1])
		if err != nil {
			return err
		}
		err = p.View(ctx, func(s *Snapshot) error {
			got, err := s.Get(ctx, []byte(at[2]))
			if err == nil && string(got) != want && at != w.trying {
				err = fmt.Errorf("%v is %q, want %q", at, got, want)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%v: %w", at, err)
		}
		if err := p.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (w *crashWorld) put(p *Page, key, value string) {
	at := [3]string{p.Ref().Ledger, p.Name(), key}
	w.mu.Lock()
	w.trying = at
	w.mu.Unlock()
	_, err := p.Update(w.t.Context(), func(tx *Tx) error { return tx.Put(w.t.Context(), []byte(key), []byte(value)) })
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.acked[at], w.trying = value, [3]string{}
	w.mu.Unlock()
}

// TestCrashOfRepository cuts the power after every change of the files of a repository, from the
// first Open on: what was acknowledged on any of its pages is there, so the names of all
// directories above are as durable as the commits.
func TestCrashOfRepository(t *testing.T) {
	w := &crashWorld{t: t, mem: vfstest.NewMem(), acked: map[[3]string]string{}}
	fs := vfstest.NewHooked(w.mem, w.boundary)
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 4 {
		r, err := w.open(fs)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range [][2]string{{"one", "a"}, {"one", "b"}, {"two", "a"}, {fmt.Sprint("new ", round), "a"}} {
			p, err := r.Page(t.Context(), at[0], at[1])
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				w.put(p, fmt.Sprint("key ", i), fmt.Sprint("value ", rng.Uint32()))
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
		if round == 1 { // a process that dies without a power cut: the next goes on with what is not synced
			w.mem = w.mem.CrashClone(vfstest.KeepAll)
			fs = vfstest.NewHooked(w.mem, w.boundary)
		}
	}
	t.Logf("%d recoveries", w.recoveries)
}

// write makes pages and puts values into them; it stops at the first error.
func (w *crashWorld) write(fs vfs.FS, round int) (err error) {
	ctx := context.Background()
	r, err := w.open(fs)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	for _, at := range [][2]string{{"one", "a"}, {"one", "b"}, {"two", "a"}} {
		p, err := r.Page(ctx, at[0], at[1])
		if err != nil {
			return err
		}
		key, value := "key", fmt.Sprint("value ", round)
		if _, err := p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, []byte(key), []byte(value)) }); err != nil {
			return err
		}
		w.mu.Lock()
		w.acked[[3]string{at[0], at[1], key}] = value
		w.mu.Unlock()
		if err := p.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestDeathBeforePowerCut lets a process die at each operation, has another one go on with what the
// first may not have synced, and then cuts the power: what the second has acknowledged is there.
func TestDeathBeforePowerCut(t *testing.T) {
	for at := 0; ; at++ {
		w := &crashWorld{t: t, mem: vfstest.NewMem(), acked: map[[3]string]string{}}
		died := false
		dying := vfstest.NewFaulty(w.mem, func(op vfstest.Op) error {
			if op.N >= at {
				died = true
				return errDeath
			}
			return nil
		})
		if err := w.write(dying, 1); err != nil && !died {
			t.Fatal(err)
		}
		clear(w.acked) // the first is only there to leave something
		if err := w.write(w.mem, 2); err != nil {
			t.Fatalf("operation %d: the second process: %v", at, err)
		}
		if err := w.recovered(w.mem.CrashClone(vfstest.KeepNone)); err != nil {
			t.Fatalf("operation %d: after the power cut: %v", at, err)
		}
		if !died {
			return
		}
	}
}

var errDeath = errors.New("the process is dead")
