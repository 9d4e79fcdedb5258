package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

var thePage = layout.Page{Ledger: "l", ID: [16]byte{1}}

// world is a host whose pages have one file, and whose effects wait for a token when hold is set.
type world struct {
	t     *testing.T
	dir   layout.Dir
	hold  chan struct{}
	fails bool
	pages *Pages[int, *handle]
	fills int
}

type handle struct{ kind Kind }

func newWorld(t *testing.T, fs vfs.FS) *world {
	w := &world{t: t, dir: layout.Dir{FS: fs, Path: "/r"}}
	w.pages = New(Host[int, *handle]{
		Dir: w.dir, Logger: slog.New(slog.DiscardHandler),
		Fill: func(_ context.Context, p layout.Page, dir string, _ *layout.Absence) error {
			w.fills++
			return w.make(dir)
		},
		Enroll: func(p layout.Page, _ string) error { return w.dir.MakeLedger(p.Ledger) },
		Create: func(_ context.Context, p layout.Page) error {
			tmp := w.dir.PageDir(p) + ".new"
			return errors.Join(w.make(tmp), fs.Rename(tmp, w.dir.PageDir(p)), fs.SyncDir(filepath.Dir(tmp)))
		},
		Start:  func(context.Context, layout.Page, string) (int, error) { return 1, w.wait() },
		Stop:   func(int, *handle) error { return w.wait() },
		Handle: func(_ int, k Kind) *handle { return &handle{k} },
		GiveUp: func(h *handle) error { _, err := w.pages.Drop(thePage, h); return err },
		Left:   func(layout.Page, *layout.Absence) {},
	})
	if err := fs.MkdirAll(filepath.Dir(w.dir.LedgerDir("l"))); err != nil {
		t.Fatal(err)
	}
	return w
}

var errHost = errors.New("the host fails")

func (w *world) wait() error {
	if w.hold != nil {
		<-w.hold
	}
	if w.fails {
		return errHost
	}
	return nil
}

// make makes the directory of a page with its file.
func (w *world) make(dir string) error {
	err := w.wait()
	if err == nil {
		err = errors.Join(w.dir.FS.RemoveAll(dir), w.dir.FS.MkdirAll(dir))
	}
	if err == nil {
		err = errors.Join(vfs.WriteFile(w.dir.FS, filepath.Join(dir, "file"), []byte("whole")), w.dir.FS.SyncDir(dir))
	}
	return err
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open(kind Kind) *handle {
	h, err := w.pages.Open(w.t.Context(), thePage, "", kind)
	w.must(err)
	return h
}

func (w *world) drop(h *handle) {
	_, err := w.pages.Drop(thePage, h)
	w.must(err)
}

func (w *world) evict() error {
	return w.pages.Take(w.t.Context(), thePage, func(leave Leave) error {
		return leave(w.t.Context(), &layout.Absence{Kind: layout.Evicted})
	})
}

// enter brings the page into a state and returns what ends that.
func (w *world) enter(s State) (end func()) {
	begin := func(fn func()) func() {
		w.hold = make(chan struct{})
		ended := make(chan struct{})
		go func() { fn(); close(ended) }()
		synctest.Wait()
		return func() { close(w.hold); <-ended } // from now on nothing waits
	}
	if s == Absent {
		return func() {}
	}
	h := w.open(ForUse)
	switch s {
	case Open:
		return func() { w.drop(h) }
	case Closing:
		return begin(func() { w.drop(h) })
	}
	w.drop(h)
	switch s {
	case Away, Coming:
		w.must(w.evict())
	case Opening:
		return begin(func() { w.drop(w.open(ForUse)) })
	case Leaving:
		return begin(func() {
			w.must(w.pages.Take(w.t.Context(), thePage, func(Leave) error { return w.wait() }))
		})
	}
	if s == Coming {
		return begin(func() { w.must(w.pages.Fetch(w.t.Context(), thePage, w.pages.host.Fill)) })
	}
	return func() {}
}

// TestEveryStateWithEveryEvent has each event come in each state: who is to wait waits until the
// state ends, and then gets what the state at rest grants; who is refused is so at once.
func TestEveryStateWithEveryEvent(t *testing.T) {
	wants := map[event]func(*world) error{
		use: func(w *world) error {
			h, err := w.pages.Open(w.t.Context(), thePage, "", ForUse)
			if err == nil {
				w.drop(h)
			}
			return err
		},
		look: func(w *world) error {
			h, err := w.pages.Open(w.t.Context(), thePage, "", ForSync)
			if err == nil {
				w.drop(h)
			}
			return err
		},
		take:   func(w *world) error { return w.evict() },
		fetch:  func(w *world) error { return w.pages.Fetch(w.t.Context(), thePage, w.pages.host.Fill) },
		forget: func(w *world) error { return w.pages.Forget(w.t.Context(), thePage) },
	}
	for s := Absent; s <= Leaving; s++ {
		for e, want := range wants {
			t.Run(fmt.Sprint(s, " ", e), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, vfstest.NewMem())
					end := w.enter(s)
					if got, _, err := w.pages.Where(thePage); err != nil || got != s {
						t.Fatalf("in state %d, %v", got, err)
					}
					st := next(s, e)
					came := make(chan error, 1)
					hold := w.hold
					if st.answer == move {
						w.hold = nil
					}
					go func() { came <- want(w) }()
					synctest.Wait()
					select {
					case err := <-came:
						refused := errors.Is(err, base.ErrNotFound) || errors.Is(err, ErrInUse)
						switch {
						case st.answer == wait:
							t.Errorf("did not wait: %v", err)
						case e != fetch && refused != (st.answer == no): // to fetch what is here is nothing to do
							t.Errorf("answer %d: %v", st.answer, err)
						}
						w.hold = hold
						end()
					default:
						if st.answer != wait {
							t.Errorf("waits, answer %d", st.answer)
						}
						end()
						// The waiter may come before the handle is dropped.
						if err := <-came; err != nil && !errors.Is(err, base.ErrNotFound) && !(s == Opening && e == take && errors.Is(err, ErrInUse)) {
							t.Error(err)
						}
					}
					w.pages.Wait()
				})
			})
		}
	}
}

// TestTable: who waits is never forgotten, and what is under way ends.
func TestTable(t *testing.T) {
	for s := Absent; s <= Leaving; s++ {
		for e := range events {
			st := next(s, e)
			if st.answer == wait && s.resting() || st.answer != move && len(st.effects) > 0 {
				t.Errorf("state %d, event %d: %+v", s, e, st)
			}
		}
		underWay := !s.resting() && s != Open
		for _, e := range []event{done, failed} {
			if (next(s, e).answer == move) != underWay {
				t.Errorf("state %d, event %d: %+v", s, e, next(s, e))
			}
		}
	}
}

// TestFailedEffects has the file system fail at each operation of a page's life: it is somewhere,
// whole, and can be had again.
func TestFailedEffects(t *testing.T) {
	for at := 0; ; at++ {
		mem, n, hit := vfstest.NewMem(), 0, false
		armed := false
		w := newWorld(t, vfstest.NewFaulty(mem, func(vfstest.Op) error {
			if n++; armed && n == at+1 {
				hit = true
				return errHost
			}
			return nil
		}))
		n, armed = 0, true
		life(w)
		armed = false
		w.drop(w.open(ForUse))
		if got, err := w.dir.PageSize(thePage); err != nil || got != 5 {
			t.Fatalf("operation %d: %d bytes, %v", at, got, err)
		}
		w.pages.Wait()
		if !hit {
			return
		}
	}
}

// life opens, evicts, fetches and deletes a page, whatever fails.
func life(w *world) {
	ctx := w.t.Context()
	for range 2 {
		if h, err := w.pages.Open(ctx, thePage, "", ForUse); err == nil {
			_, _ = w.pages.Drop(thePage, h)
		}
		_ = w.evict()
	}
	_ = w.pages.Forget(ctx, thePage)
}

// TestCrashAfterEveryEffect cuts the power after each change of the files in a page's life: the
// next process finds it whole, away or absent, and nothing else (A1 to A4).
func TestCrashAfterEveryEffect(t *testing.T) {
	mem := vfstest.NewMem()
	seen := map[State]int{}
	op := 0
	var ready bool
	w := newWorld(t, vfstest.NewHooked(mem, func(o vfstest.Op) {
		if op++; !ready {
			return
		}
		for v, keep := range []func() float64{vfstest.KeepNone, vfstest.KeepAll, vfstest.KeepSome(uint64(op)), vfstest.KeepSome(uint64(op) << 20)} {
			next := newWorld(t, mem.CrashClone(keep))
			if err := next.dir.RemoveLeftovers(); err != nil {
				t.Fatal(err)
			}
			s, _, err := next.pages.Where(thePage)
			size, sizeErr := next.dir.PageSize(thePage)
			if err = errors.Join(err, sizeErr); err != nil || (s == Here) != (size == 5) {
				t.Errorf("operation %d (%s), crash %d: state %d, %d bytes, %v", op, o, v, s, size, err)
			}
			seen[s]++
			next.drop(next.open(ForUse))
		}
	}))
	w.drop(w.open(ForUse))
	ready = true
	life(w)
	if seen[Here] == 0 || seen[Away] == 0 {
		t.Errorf("found %v", seen)
	}
	t.Log(seen)
}

// TestWhoWaitsKeepsThePage: a page does not leave while somebody waits to use it.
func TestWhoWaitsKeepsThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, vfstest.NewMem())
		w.drop(w.open(ForUse))
		came := make(chan *handle, 1)
		err := w.pages.Take(t.Context(), thePage, func(leave Leave) error {
			go func() { came <- w.open(ForUse) }()
			synctest.Wait()
			return leave(t.Context(), &layout.Absence{Kind: layout.Evicted})
		})
		if !errors.Is(err, ErrInUse) {
			t.Errorf("took it: %v", err)
		}
		w.drop(<-came)
		if w.fills > 0 {
			t.Error("it was fetched")
		}
	})
}

// TestSyncGivesWay: who only syncs a page is made to give it up.
func TestSyncGivesWay(t *testing.T) {
	w := newWorld(t, vfstest.NewMem())
	w.drop(w.open(ForUse))
	w.open(ForSync)
	if got := w.pages.UseOf(thePage); got != ForSync {
		t.Errorf("use %d", got)
	}
	w.must(w.evict())
	if s, _, err := w.pages.Where(thePage); err != nil || s != Away {
		t.Errorf("state %d, %v", s, err)
	}
}

// TestNewPageThatCannotBeOpened leaves nothing, and a page that was deleted stays deleted.
func TestNewPageThatCannotBeOpened(t *testing.T) {
	for _, absence := range []*layout.Absence{nil, {Kind: layout.Deleted, Name: "n"}} {
		w := newWorld(t, vfstest.NewMem())
		if absence != nil {
			w.drop(w.open(ForUse))
			w.must(w.pages.Take(t.Context(), thePage, func(leave Leave) error { return leave(t.Context(), absence) }))
		}
		w.pages.host.Start = func(context.Context, layout.Page, string) (int, error) { return 0, errHost }
		if _, err := w.pages.Open(t.Context(), thePage, "", ForUse); !errors.Is(err, errHost) {
			t.Errorf("opened: %v", err)
		}
		switch s, a, err := w.pages.Where(thePage); {
		case err != nil || s != Absent:
			t.Errorf("state %d, %v", s, err)
		case (a == nil) != (absence == nil) || a != nil && *a != *absence:
			t.Errorf("the record is %+v, want %+v", a, absence)
		}
		w.pages.Wait()
	}
}
