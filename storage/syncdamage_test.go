package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// syncedPage is a closed page with a row of every kind that sync has.
type syncedPage struct {
	*world
	own, from, bare *commit.Commit
	held, absent    object.Digest // pieces with places
	local           object.Digest
}

func newSyncedPage(t *testing.T) *syncedPage {
	w := newWorld(t, 1, storage.Options{})
	w.withSync()
	w.open()
	p := &syncedPage{world: w}
	values := map[string][]byte{"held": noise(w.rng, 700), "absent": noise(w.rng, 700), "local": noise(w.rng, 700)}
	for _, v := range values {
		w.cloud.put(object.Sum(0, v), v)
	}
	p.held, p.absent, p.local = object.Sum(0, values["held"]), object.Sum(0, values["absent"]), object.Sum(0, values["local"])
	p.own = w.commit(edit{"held": values["held"], "local": values["local"]})
	bare := w.s.NewJournal()
	b, err := w.make(bare, small(1), 0, p.own)
	w.must(err)
	bare.Rollback()
	p.bare = b.c
	j := w.s.NewJournal()
	p.from, err = w.makeReceived(j, edit{}, edit{"absent": values["absent"]}, p.own, []storage.ReceivedCommit{{Commit: p.bare, Treeless: true}})
	w.must(err)
	w.must(w.setTag("changed", p.own))
	w.sync(j, storage.SyncBatch{
		Commits:  []storage.ReceivedCommit{{Commit: p.bare, Treeless: true}, {Commit: p.from}},
		Places:   []storage.PlacedPiece{{Digest: p.held, Place: entryPlace(1)}, {Digest: p.absent, Place: entryPlace(2)}},
		Metadata: []storage.Metadata{{Type: "position", Value: []byte("here")}},
	})
	w.must(checkClean(w.s))
	w.close()
	return p
}

// rowOf returns a row of a family: the only one.
func rowOf(t *testing.T, db index.DB, family string, n int) (k, v []byte) {
	t.Helper()
	err := db.View(func(tx index.Tx) error {
		c := tx.Bucket(family).Cursor()
		k, v = c.First()
		for range n {
			k, v = c.Next()
		}
		k, v = bytes.Clone(k), bytes.Clone(v)
		return nil
	})
	if err != nil || k == nil {
		t.Fatalf("row %d of %s: %v", n, family, err)
	}
	return k, v
}

// keyOf returns the key of a row with a value.
func keyOf(t *testing.T, db index.DB, family string, value []byte) []byte {
	t.Helper()
	for i := 0; ; i++ {
		if k, v := rowOf(t, db, family, i); bytes.Equal(v, value) {
			return k
		}
	}
}

func putRow(t *testing.T, db index.DB, family string, k, v []byte) {
	t.Helper()
	err := db.Update(func(tx index.Tx) error {
		if v == nil {
			return tx.Bucket(family).Delete(k)
		}
		return tx.Bucket(family).Put(k, v)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCorruptSyncRows damages every bit of the rows that have a checksum: the index is made anew
// from the log, once, and what is read is right; then an error names the row.
func TestCorruptSyncRows(t *testing.T) {
	p := newSyncedPage(t)
	read := map[string]func() error{
		"cloud": func() error {
			st, err := p.s.PieceState(p.held)
			if err == nil && (!st.Synced || st.Place != entryPlace(1)) {
				err = fmt.Errorf("state %+v", st)
			}
			return err
		},
		"sync_metadata": func() error {
			v, err := p.s.Metadata(t.Context(), "position")
			if err == nil && string(v) != "here" {
				err = fmt.Errorf("value %q", v)
			}
			return err
		},
		"unsynced/tags": func() error {
			tags, err := p.s.UnsyncedTags(t.Context())
			if err == nil && (len(tags) != 1 || tags[0] != storage.TagChange{Name: "changed", Commit: p.own.ID}) {
				err = fmt.Errorf("tags %v", tags)
			}
			return err
		},
	}
	for family, fn := range read {
		_, v := rowOf(t, p.ix, family, 0)
		for i := range len(v) * 8 {
			p.ix = p.ix.Clone()
			p.o.MemoryIndex = p.ix
			k := keyOf(t, p.ix, family, v)
			p.open()
			bad := bytes.Clone(v)
			bad[i/8] ^= 1 << (i % 8)
			putRow(t, p.ix, family, k, bad)
			if err := fn(); err != nil {
				t.Errorf("%s, bit %d: %v", family, i, err)
			}
			if r := p.s.Recovery(); !strings.Contains(r.IndexRebuilt, family) {
				t.Errorf("%s, bit %d: recovery %+v", family, i, r)
			}
			k = keyOf(t, p.ix, family, v) // numbers may differ now
			putRow(t, p.ix, family, k, bad[:i/8])
			var c *base.CorruptError
			if err := fn(); !errors.As(err, &c) || c.Where != "page.db row "+family+"/" {
				t.Errorf("%s, bit %d: damaged again: %v", family, i, err)
			}
			for _, err := range p.s.Rows(t.Context(), family) {
				if !errors.Is(err, base.ErrCorrupt) {
					t.Errorf("%s, bit %d: rows: %v", family, i, err)
				}
			}
			putRow(t, p.ix, family, k, v)
			p.close()
		}
	}
}

// TestCheckFindsWrongSyncRows compares rows that are missing, too many, or of another value with
// the log.
func TestCheckFindsWrongSyncRows(t *testing.T) {
	p := newSyncedPage(t)
	p.open()
	for _, family := range []string{
		"cloud", "local/objects", "sync_metadata", "unsynced/tags", "unsynced/commits", "treeless/commits",
	} {
		k, v := rowOf(t, p.ix, family, 0)
		another := bytes.Clone(k)
		another[len(another)-1] += 77
		changes := map[string]func(){
			"missing":  func() { putRow(t, p.ix, family, k, nil) },
			"too many": func() { putRow(t, p.ix, family, another, v) },
			"value":    func() { putRow(t, p.ix, family, k, append(bytes.Clone(v), 1)) },
		}
		for what, change := range changes {
			change()
			r, err := p.s.Check(t.Context(), storage.CheckOptions{})
			p.must(err)
			if r.Clean() || !strings.Contains(fmt.Sprint(r.Problems), family) {
				t.Errorf("%s, %s: problems %v", family, what, r.Problems)
			}
			putRow(t, p.ix, family, another, nil)
			putRow(t, p.ix, family, k, v)
		}
	}
	p.must(checkClean(p.s))
	p.close()
}

// TestLostTreelessRow takes away the row by which the tree of a commit need not be here: the index
// is made anew before anything is called damaged.
func TestLostTreelessRow(t *testing.T) {
	p := newSyncedPage(t)
	p.open()
	putRow(t, p.ix, "treeless/commits", p.bare.ID[:], nil)
	if held, err := p.s.TreeHeld(t.Context(), p.bare); held || err != nil {
		t.Errorf("tree held %v, %v", held, err)
	}
	if _, err := p.s.Node(t.Context(), p.bare.Root); !errors.Is(err, base.ErrNeedsFetch) || !strings.Contains(err.Error(), p.bare.ID.String()) {
		t.Errorf("read: %v", err)
	}
	p.close()
	p.ix = p.ix.Clone()
	p.o.MemoryIndex = p.ix
	p.open()
	k, _ := rowOf(t, p.ix, "cloud", 1)
	putRow(t, p.ix, "cloud", k, nil)
	if b, err := p.s.Piece(t.Context(), p.absent); err != nil || len(b) != 700 {
		t.Errorf("read a piece whose place is lost: %d bytes, %v", len(b), err)
	}
	if r := p.s.Recovery(); r.IndexRebuilt == "" {
		t.Error("the index was not made anew")
	}
	p.close()
}

// TestStrangeSyncRecords lets the log have records that no call makes: they say nothing about what
// is not there, and the page can be read, folded in parts or at once, and is clean.
func TestStrangeSyncRecords(t *testing.T) {
	p := newSyncedPage(t)
	stranger := object.Sum(0, []byte("a piece that nobody has mentioned"))
	id := commit.ID{9}
	for _, r := range []struct {
		kind    byte
		payload []byte
	}{
		{11, stranger[:]},
		{12, stranger[:]},
		{13, append([]byte{1}, id[:]...)},
		{13, append([]byte{2}, id[:]...)},
		{13, append([]byte{3}, id[:]...)},
		{15, append([]byte{1}, append(id[:], "changed"...)...)},
		{16, append([]byte{0, 4}, "none"...)},
	} {
		appendRecord(p.world, r.kind, r.payload)
	}
	for _, fold := range []int{0, 3} {
		for _, ix := range []*index.Memory{p.ix.Clone(), index.NewMemory()} {
			p.o.MemoryIndex, p.o.FoldRows = ix, fold
			p.open()
			wantState(t, p.s, p.local, true, nil)
			if _, err := p.s.Piece(t.Context(), p.local); err != nil {
				t.Error(err)
			}
			p.must(p.s.Fold(t.Context()))
			wantState(t, p.s, p.local, true, nil)
			p.must(checkClean(p.s))
			if ids, err := p.s.Unsynced(t.Context()); err != nil || len(ids) != 1 {
				t.Errorf("unsynced %v, %v", ids, err)
			}
			if tags, err := p.s.UnsyncedTags(t.Context()); err != nil || len(tags) != 1 {
				t.Errorf("tags %v, %v", tags, err)
			}
			p.close()
		}
	}
}

// TestPlacesAreCompact keeps the rows of places small: there may be millions.
func TestPlacesAreCompact(t *testing.T) {
	p := newSyncedPage(t)
	_, v := rowOf(t, p.ix, "cloud", 0)
	if len(v) > 12 || crc32.Checksum(append(bytes.Clone(p.held[:]), v[:len(v)-4]...), crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(v[len(v)-4:]) {
		t.Errorf("row %x", v)
	}
}
