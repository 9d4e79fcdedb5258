package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// compactShares are what tests ask of compaction: all garbage, some, the default.
var compactShares = []float64{1e-9, 0.2, 0}

// compact compacts the page and compares all rows with those that the log gives then.
func (g *garden) compact() storage.CompactReport {
	o := storage.CompactOptions{MinDeadShare: compactShares[g.rng.IntN(len(compactShares))]}
	if g.rng.IntN(2) == 0 {
		o.MaxBytes = 1 + g.rng.Int64N(20<<10)
	}
	purge := o
	purge.Purge = g.rng.IntN(3) == 0
	r, err := g.s.Compact(context.Background(), purge)
	g.check(err)
	g.check(checkClean(g.s))
	if len(g.open) == 0 && g.rng.IntN(4) == 0 {
		g.again(o)
	}
	return r
}

// again compacts until nothing is left to do, which is soon: what the first time has left may let
// deletions go.
func (g *garden) again(o storage.CompactOptions) {
	for range 4 {
		r, err := g.s.Compact(context.Background(), o)
		g.check(err)
		if r.Replaced == 0 {
			if r.Freed != 0 || r.Written != 0 {
				g.t.Fatalf("compacted nothing: %+v", r)
			}
			return
		}
	}
	g.t.Fatal("compaction does not come to an end")
}

// replant makes a commit on a head that has the content of some commit, which may be gone: nodes
// come back.
func (g *garden) replant() {
	all := slices.Concat(g.kept, g.pruned)
	heads := g.s.Heads()
	on := heads[g.rng.IntN(len(heads))]
	g.mu.Lock()
	have, want := g.models[on.ID], g.models[all[g.rng.IntN(len(all))].ID]
	g.mu.Unlock()
	e := edit{}
	for k := range have {
		if want[k] == nil {
			e[k] = nil
		}
	}
	for k, v := range want {
		if !bytes.Equal(have[k], v) {
			e[k] = v
		}
	}
	if len(e) == 0 {
		return
	}
	j := g.s.NewJournal()
	defer j.Rollback()
	t, err := g.submitJournal(j, e, 0, on)
	g.check(err)
	g.check(g.wait(t))
	g.add(t.c)
}

// meanwhile compacts, and reads everything and makes a commit in between.
func (g *garden) meanwhile() {
	g.check(g.s.Fold(context.Background()))
	at, n := g.rng.IntN(30), 0
	g.boundary = func(string) {
		if n++; n == at {
			g.boundary = nil
			g.look()
		}
	}
	o := storage.CompactOptions{MinDeadShare: 1e-9}
	if g.o.FoldRows == 0 { // else it would wait for the fold that waits for the compaction
		heads := g.s.Heads()
		o.Progress = func(int64, int64) { g.plant(heads[g.rng.IntN(len(heads))]) }
	}
	_, err := g.s.Compact(context.Background(), o)
	g.boundary = nil
	g.check(err)
	g.check(checkClean(g.s))
}

// giveUp ends a compaction at some moment: by its context, or since the disk is full.
func (g *garden) giveUpCompaction() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g.check(g.s.Fold(ctx)) // none in the background, which would be told of, too
	at, n := g.rng.IntN(40), 0
	full := g.rng.IntN(2) == 0
	g.boundary = func(string) {
		if n++; n != at {
			return
		}
		if g.full = full; !full {
			cancel()
		}
	}
	_, err := g.s.Compact(ctx, storage.CompactOptions{MinDeadShare: 1e-9, MaxBytes: 1 + g.rng.Int64N(30<<10)})
	g.boundary, g.full = nil, false
	switch {
	case err == nil:
	case errors.Is(err, base.ErrReadOnly): // it could not be known whether something is there
		g.reopen()
		g.s.SetFetcher(g.cloud)
	case !full && !errors.Is(err, context.Canceled), full && !errors.Is(err, base.ErrNoSpace):
		g.t.Fatalf("a compaction that was given up: %v", err)
	}
	g.check(checkClean(g.s))
}

// backUp copies the page, which is compacted meanwhile, and opens the copy.
func (g *garden) backUp() {
	ctx := context.Background()
	o := g.o
	mem := vfstest.NewMem()
	g.check(mem.MkdirAll(o.Dir))
	o.FS, o.MemoryIndex = mem, index.NewMemory()
	kept := slices.Clone(g.kept)
	n, at := 0, g.rng.IntN(4)
	g.check(g.s.CopyTo(ctx, func(name string, _ int64) (io.WriteCloser, error) {
		if n++; n == at+1 {
			g.compact()
		}
		f, err := mem.Create(filepath.Join(o.Dir, name))
		return &fileWriter{File: f}, err
	}))
	s, err := storage.Open(ctx, o)
	g.check(err)
	s.SetFetcher(g.cloud)
	for _, c := range kept {
		g.check(g.verifyContent(s, c))
	}
	g.check(checkClean(s))
	g.check(s.Close())
}

// fileWriter writes to a file from its beginning.
type fileWriter struct {
	vfs.File
	at int64
}

func (w *fileWriter) Write(b []byte) (int, error) {
	n, err := w.WriteAt(b, w.at)
	w.at += int64(n)
	return n, err
}

// putBack closes the page and opens it with a page.db of some time before.
func (g *garden) putBack() {
	if g.olds = append(g.olds, g.ix.Clone()); g.rng.IntN(2) == 0 {
		return
	}
	g.drop()
	g.close()
	g.ix = g.olds[g.rng.IntN(len(g.olds))].Clone()
	g.o.MemoryIndex = g.ix
	g.open1()
	g.s.SetFetcher(g.cloud)
	g.check(checkClean(g.s))
}

// hooked is a file system whose changes the boundaries are told of, and that is full at times.
func (g *garden) hooked(mem *vfstest.Mem) vfs.FS {
	return vfstest.NewHooked(vfstest.NewFaulty(mem, func(op vfstest.Op) error {
		if g.full && takesSpace(op.Kind) {
			return fmt.Errorf("%s: %w", op, base.ErrNoSpace)
		}
		return nil
	}), func(op vfstest.Op) { g.tell(op.String()) })
}

// crashIn cuts the power at some change of the files or the index, while fn runs.
func (g *garden) crashIn(fn func()) (crashed bool) {
	g.check(g.s.Fold(context.Background()))
	at, n := g.rng.IntN(60), 0
	var mem *vfstest.Mem
	var ix *index.Memory
	g.boundary = func(string) {
		if n++; n == at {
			mem, ix = g.mem.CrashClone(g.rng.Float64), g.ix.Clone()
		}
	}
	fn()
	g.boundary = nil
	if mem == nil {
		return false
	}
	if g.rng.IntN(4) == 0 {
		ix = index.NewMemory()
	}
	old := g.s
	g.drop()
	g.check(old.Close())
	g.mem, g.ix = mem, ix
	g.o.FS, g.o.MemoryIndex = g.hooked(mem), ix
	if g.rng.IntN(3) == 0 { // a reader mends nothing
		o := g.o
		o.ReadOnly, o.MemoryIndex = true, ix.Clone()
		if s, err := storage.Open(context.Background(), o); err == nil {
			g.check(s.Close())
		}
	}
	g.open1()
	g.s.SetFetcher(g.cloud)
	return true
}

// TestCompactModel does random things to a page and compacts it in between, with crashes: what is
// reachable stays readable, and a fold of what is left of the log always gives the rows that are
// there.
func TestCompactModel(t *testing.T) {
	var freed int64
	var replaced, crashes int
	for tries := 0; tries < 10 && freed == 0; tries++ { // what some cases do not have, others have
		rapid.Check(t, func(rt *rapid.T) {
			g := newGarden(t, rt)
			g.o.FS = g.hooked(g.mem)
			g.reopen()
			g.cloud = &cloud{pieces: map[object.Digest][]byte{}}
			g.s.SetFetcher(g.cloud)
			withSync := rapid.Bool().Draw(rt, "sync")
			ops := rapid.SliceOfN(rapid.IntRange(0, 31), 5, 50).Draw(rt, "operations")
			for _, op := range ops {
				switch op {
				case 0, 1, 2, 3:
					h := g.s.Heads()
					g.plant(h[g.rng.IntN(len(h))])
				case 4:
					g.plant(g.pick())
				case 5:
					g.merge()
				case 6, 7, 8:
					g.leave()
				case 9, 10, 11:
					g.prune()
				case 12:
					g.tag()
				case 13:
					g.reopen()
					g.s.SetFetcher(g.cloud)
				case 14, 15:
					if withSync {
						g.share()
					}
				case 16, 17, 18:
					for range 1 + g.rng.IntN(20) {
						g.step()
					}
				case 19:
					if g.crashIn(func() { g.compact() }) {
						crashes++
					}
					g.look()
				case 20, 21, 22:
					g.replant()
				case 23:
					g.meanwhile()
				case 24:
					g.giveUpCompaction()
				case 25:
					g.backUp()
				case 26, 27:
					g.putBack()
				default:
					r := g.compact()
					freed, replaced = freed+r.Freed, replaced+r.Replaced
				}
				if g.rng.IntN(4) == 0 {
					g.look()
				}
			}
			g.drop()
			g.compact()
			g.look()
			g.reopen()
			g.look()
			g.check(checkClean(g.s))
			g.close()
		})
	}
	if freed == 0 {
		t.Error("nothing was freed")
	}
	t.Logf("%d segments replaced, %d bytes freed, %d crashes", replaced, freed, crashes)
}
