package pack_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// A value of a real page goes to packs, is dropped, and comes back by reading it: all of it, a
// range of it, and not at all without the bucket.
func TestPageValue(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	s := openStore(t)
	value := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(value)
	root := commitValue(t, s, value)
	refs := uploadLocal(t, w, s)
	if len(refs) != 1 {
		t.Fatalf("%d packs", len(refs))
	}
	var all []object.Digest
	places, err := w.table(refs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		all = append(all, p.Digest)
	}
	drop := func() {
		t.Helper()
		if n, err := s.DropPieces(t.Context(), all); err != nil || n < int64(len(value)) {
			t.Fatalf("dropped %d bytes, %v", n, err)
		}
	}
	read := func(off, n int64) error {
		got := make([]byte, n)
		_, err := split.NewReader(t.Context(), s, root, uint64(len(value))).ReadAt(got, off)
		if err == nil && !bytes.Equal(got, value[off:off+n]) {
			t.Errorf("other content at %d", off)
		}
		return err
	}
	f := w.fetcher(s, nil)
	s.SetFetcher(f)
	drop()
	before := w.b.Counts()
	if err := read(1<<20, 1000); err != nil {
		t.Fatal(err)
	}
	if c := w.b.Counts(); c.B-before.B > 5 || c.Down-before.Down > 600<<10 { // two or three levels of the value, and the table
		t.Errorf("%d requests, %d bytes for a range of 1000 bytes", c.B-before.B, c.Down-before.Down)
	}
	before = w.b.Counts()
	if err := read(0, int64(len(value))); err != nil {
		t.Fatal(err)
	}
	blocks := int64(places[len(places)-1].Place.Block) + 1
	if c := w.b.Counts(); c.B-before.B > 4 { // one for each level, and one where something is here already
		t.Errorf("%d requests for %d blocks of one pack", c.B-before.B, blocks)
	}
	drop()
	before = w.b.Counts()
	if n, err := f.FetchAll(t.Context(), all); err != nil || n < int64(len(value)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if c := w.b.Counts(); c.B-before.B != 1 {
		t.Errorf("%d requests for all", c.B-before.B)
	}
	drop()
	w.mem.SetBefore(func(bucket.Op, string) error { return base.ErrNetwork })
	if err := read(0, 10); !errors.Is(err, base.ErrNetwork) {
		t.Errorf("without a network: %v", err)
	}
	w.mem.SetBefore(nil)
	w.mem.Wipe()
	if err := read(0, 10); !errors.Is(err, base.ErrGone) {
		t.Errorf("from an empty bucket: %v", err)
	}
}

func openStore(t *testing.T) *storage.Store {
	t.Helper()
	o := storage.Options{Dir: filepath.Join(t.TempDir(), "page"), Page: [16]byte{7}, FS: vfstest.NewMem(), MemoryIndex: index.NewMemory()}
	if err := storage.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// commitValue commits a value and returns its root piece.
func commitValue(t *testing.T, s *storage.Store, value []byte) object.Digest {
	t.Helper()
	ctx := t.Context()
	j := s.NewJournal()
	defer j.Rollback()
	head := s.NewestHead()
	root, err := split.SplitBytes(ctx, split.DefaultTable(), value, func(ctx context.Context, p split.Piece) error {
		return j.PutPiece(ctx, p.Digest, p.Content)
	})
	if err != nil {
		t.Fatal(err)
	}
	var changes iter.Seq2[btree.Change, error] = func(yield func(btree.Change, error) bool) {
		yield(btree.Change{Entry: fb.Entry{Key: []byte("k"), Digest: root, Size: uint64(len(value)), Priority: object.Lazy}}, nil)
	}
	tree, err := btree.Tree{Page: [16]byte{7}, Source: j, Root: head.Root}.Apply(ctx, j, changes)
	if err != nil {
		t.Fatal(err)
	}
	c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: tree, Parents: []*commit.Commit{head}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Submit(ctx, j, c)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// uploadLocal uploads what the bucket does not have of a page.
func uploadLocal(t *testing.T, w *world, s *storage.Store) []wire.Pack {
	t.Helper()
	ctx := t.Context()
	o := w.options(nil)
	o.Uploaded = func(ctx context.Context, _ wire.Pack, places []storage.PlacedPiece) error {
		p, err := s.SubmitSync(ctx, nil, &storage.SyncBatch{Places: places})
		if err != nil {
			return err
		}
		return p.Wait()
	}
	u := pack.NewUploader(ctx, o)
	defer u.Close()
	var local []object.Digest
	err := s.LocalPieces(ctx, func(d object.Digest) error {
		local = append(local, d)
		return nil
	})
	for _, d := range local {
		if err != nil {
			break
		}
		var content []byte
		if content, err = s.Piece(ctx, d); err == nil && !d.Kind().IsNode() {
			err = u.Add(d, content, false, true)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	refs, err := u.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return refs
}
