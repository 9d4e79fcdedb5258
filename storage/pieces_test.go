package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// TestPiecesAreLookedUpAndReadTogether compares Pieces with PieceState and Piece, for pieces that
// are pending, folded, dropped, fetched, not known and damaged.
func TestPiecesAreLookedUpAndReadTogether(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	e, contents := edit{}, map[object.Digest][]byte{}
	var ds []object.Digest
	for i := range 1000 {
		content := noise(w.rng, 300+w.rng.IntN(3700))
		e[fmt.Sprintf("value %04d", i)] = content
		ds = append(ds, object.Sum(0, content))
		contents[ds[i]] = content
	}
	w.commit(e)
	read := func(when string) {
		t.Helper()
		w.rng.Shuffle(len(ds)/2, func(i, j int) { ds[i], ds[j] = ds[j], ds[i] }) // half of them in no order
		asked, next := 0, 0
		err := w.s.Pieces(t.Context(), ds, func(i int, st *storage.PieceState) bool {
			one, err := w.s.PieceState(ds[i])
			if i != asked || err != nil || one != *st {
				t.Errorf("%s: state of piece %d is %+v, want %+v, %v", when, i, *st, one, err)
			}
			asked++
			return i%3 > 0
		}, func(i int, content []byte) error {
			if next++; next%3 == 0 {
				next++
			}
			if i != next || !bytes.Equal(content, contents[ds[i]]) {
				t.Errorf("%s: piece %d instead of %d, right content %v", when, i, next, bytes.Equal(content, contents[ds[i]]))
			}
			return nil
		})
		if err != nil || asked != len(ds) {
			t.Errorf("%s: %d pieces, %v", when, asked, err)
		}
	}
	w.each(read)
	bucket := &cloud{pieces: contents}
	w.s.SetFetcher(bucket)
	var places []storage.PlacedPiece
	for i, d := range ds {
		if i%2 == 0 {
			places = append(places, storage.PlacedPiece{Digest: d, Place: entryPlace(7)})
		}
	}
	w.sync(nil, storage.SyncBatch{Places: places})
	if _, err := w.s.DropPieces(t.Context(), ds[:300]); err != nil {
		t.Fatal(err)
	}
	w.each(func(when string) { w.s.SetFetcher(bucket); read(when) })

	enough := errors.New("enough")
	n := 0
	all := func(int, *storage.PieceState) bool { return true }
	err := w.s.Pieces(t.Context(), ds, all, func(int, []byte) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 {
		t.Errorf("an error of fn: %v after %d", err, n)
	}
	unknown := object.Sum(0, []byte("unknown"))
	err = w.s.Pieces(t.Context(), []object.Digest{unknown}, func(_ int, st *storage.PieceState) bool { return *st != storage.PieceState{} }, nil)
	if err != nil {
		t.Errorf("a piece that nobody wants: %v", err)
	}
	if err = w.s.Pieces(t.Context(), []object.Digest{ds[1], unknown}, all, func(int, []byte) error { return nil }); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a piece that is not there: %v", err)
	}
	w.close()
}

// TestPiecesAreReadAhead reads several MiB with fn looking at what it was lent until it returns,
// and ends in the middle.
func TestPiecesAreReadAhead(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	e := edit{}
	var ds []object.Digest
	for i := range 1200 {
		content := noise(w.rng, 4000)
		e[fmt.Sprintf("value %04d", i)] = content
		ds = append(ds, object.Sum(0, content))
	}
	w.commit(e)
	w.must(w.s.Fold(t.Context()))
	all := func(int, *storage.PieceState) bool { return true }
	enough := errors.New("enough")
	for _, end := range []int{len(ds), 0, 300, 600, 1199} {
		n := 0
		err := w.s.Pieces(t.Context(), ds, all, func(i int, content []byte) error {
			if i == end {
				return enough
			}
			if err := ds[i].Verify(content); err != nil || i != n {
				t.Fatalf("piece %d instead of %d: %v", i, n, err)
			}
			n++
			return nil
		})
		if n != end || (err == nil) != (end == len(ds)) || err != nil && !errors.Is(err, enough) {
			t.Errorf("%d pieces instead of %d: %v", n, end, err)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.s.Pieces(t.Context(), ds, all, func(int, []byte) error { runtime.Goexit(); return nil })
	}()
	<-ended
	w.close()
}

// TestPiecesFindDamage changes a byte of a piece among others on the disk.
func TestPiecesFindDamage(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	content := bytes.Repeat([]byte("damage me! "), 300)
	e, ds := edit{"m": content}, []object.Digest{object.Sum(0, content)}
	for i := range 5 {
		c := noise(w.rng, 3000)
		e[fmt.Sprint(i)], ds = c, append(ds, object.Sum(0, c))
	}
	w.commit(e)
	w.must(w.s.Fold(t.Context()))
	infos, err := w.mem.ReadDir(w.o.Dir)
	w.must(err)
	for _, info := range infos {
		if !strings.HasSuffix(info.Name, ".seg") {
			continue
		}
		name := filepath.Join(w.o.Dir, info.Name)
		b, err := vfs.ReadFile(w.mem, name, 1<<30)
		w.must(err)
		if at := bytes.Index(b, content); at >= 0 {
			damage(t, w.mem, name, func(f vfs.File) error {
				_, err := f.WriteAt([]byte{'D'}, int64(at+100))
				return err
			})
		}
	}
	n := 0
	err = w.s.Pieces(t.Context(), append(ds[1:], ds[0]), func(int, *storage.PieceState) bool { return true }, func(int, []byte) error { n++; return nil })
	if c, ok := errors.AsType[*base.CorruptError](err); !ok || c.Key != ds[0].String() || n != 5 {
		t.Errorf("read a damaged piece behind %d: %v", n, err)
	}
	w.must(w.s.Close())
}
