package idb_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

func blob(content string) idb.Blob {
	return idb.Blob{Type: "text/plain", Size: int64(len(content)), Content: strings.NewReader(content)}
}

// contents reads all blobs of a record.
func contents(t tb, rec *idb.Record) (all string) {
	t.Helper()
	for i := range rec.Objects {
		v, err := rec.Open(t.Context(), i)
		must(t, err)
		b, err := io.ReadAll(v)
		must(t, errors.Join(err, v.Close()))
		all += string(b) + ";"
	}
	return all
}

// TestBlobs: wpt blob-contenttype, blob-valid-before-commit, blob-delete-objectstore-db,
// nested-cloning, keypath of files. A blob has to be read before its record is deleted, unlike
// "Blobs stay alive after their records are deleted".
func TestBlobs(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "size", idb.Path("blob.size"), nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "file", idb.Paths("file.name", "file.type", "file.lastModified"), nil))
		have[*idb.ObjectStore](t)(u.CreateObjectStore("gone", nil))
	})
	tx := have[*idb.Tx](t)(db.Begin(ctx, idb.ReadWrite, "store", "gone"))
	s, gone := have[*idb.ObjectStore](t)(tx.ObjectStore("store")), have[*idb.ObjectStore](t)(tx.ObjectStore("gone"))
	file := blob("file")
	file.File, file.Name, file.Modified = true, "name.txt", time.UnixMilli(1234)
	v := object("blob", &value.Blob{Index: 0}, "file", &value.Blob{Index: 1, File: true}, "again", &value.Blob{Index: 0}, "empty", &value.Blob{Index: 2})
	have[indexeddb.Key](t)(s.Put(ctx, v, 1, blob("content"), file, idb.Blob{}))
	have[indexeddb.Key](t)(gone.Put(ctx, &value.Blob{}, 1, blob("gone")))
	rec := have[*idb.Record](t)(s.Record(ctx, 1))
	wants(t, "Blobs can be read back before their records are committed.", contents(t, rec), "content;file;;")
	wants(t, "Blob type should be preserved when fetched", rec.Objects[0].MediaType, "text/plain")
	x, y := have[*idb.Index](t)(s.Index("size")), have[*idb.Index](t)(s.Index("file"))
	wants(t, "size", have[indexeddb.Key](t)(x.GetKey(ctx, 7)), "1")
	wants(t, "file", have[indexeddb.Key](t)(y.GetKey(ctx, []any{"name.txt", "text/plain", 1234})), "1")

	// They go to other places and records, also in place of each other.
	long := strings.Repeat("long", 20_000)
	have[indexeddb.Key](t)(s.Put(ctx, object("file", &value.Blob{Index: 0, File: true}, "blob", &value.Blob{Index: 1}, "text", long), 1, rec.Blob(1), rec.Blob(0)))
	rec = have[*idb.Record](t)(s.Record(ctx, 1))
	wants(t, "exchanged", contents(t, rec), "file;content;")
	have[indexeddb.Key](t)(s.Put(ctx, object("blob", &value.Blob{Index: 0}), 2, rec.Blob(1)))
	wants(t, "copied", contents(t, have[*idb.Record](t)(s.Record(ctx, 2))), "content;")
	c := have[*idb.Cursor](t)(s.OpenCursor(ctx, 1, idb.Next))
	if b := have[[]byte](t)(c.Serialized(ctx)); !bytes.Contains(b, []byte(long)) {
		t.Errorf("the value is in an external object, and the cursor has %d bytes", len(b))
	}
	c.Close()
	must(t, tx.Commit(ctx))
	if r := clean(t, rows); r.Blobs != 5 { // one has the long value
		t.Errorf("%+v", r)
	}

	s = begin(t, db, idb.ReadWrite, "store")
	for name, b := range map[string]idb.Blob{
		"shorter": {Size: 9, Content: strings.NewReader("short")}, "longer": {Size: 2, Content: strings.NewReader("long")}, "fails": {Size: 2, Content: failing{}},
	} {
		_, err := s.Put(ctx, &value.Blob{}, 3, b)
		is(t, name, err, idb.ErrUnknown)
		s.Tx().PreventDefault() // in vain: the record is there in part
		_, err = s.Get(ctx, 1)
		is(t, name, err, idb.ErrAbort)
		s = begin(t, db, idb.ReadWrite, "store")
	}
	for name, b := range map[string]idb.Blob{"without content": {Size: 1}, "negative": {Size: -1, Content: strings.NewReader("")}, "of none": rec.Blob(7)} {
		_, err := s.Put(ctx, &value.Blob{}, 3, b)
		is(t, name, err, idb.ErrDataClone)
	}
	rec = have[*idb.Record](t)(s.Record(ctx, 1))
	_, err := rec.Open(ctx, 2)
	is(t, "open", err, idb.ErrType)
	c = have[*idb.Cursor](t)(have[*idb.Index](t)(s.Index("size")).OpenCursor(ctx, 7, idb.Next))
	have[indexeddb.Key](t)(c.Update(ctx, object("blob", &value.Blob{}), have[*idb.Record](t)(c.Record(ctx)).Blob(1)))
	c.Close()
	wants(t, "updated", contents(t, have[*idb.Record](t)(s.Record(ctx, 1))), "content;")
	have[indexeddb.Key](t)(s.Put(ctx, 1.0, 2))
	commit(t, s)
	_, err = rec.Open(ctx, 0)
	is(t, "open", err, idb.ErrTransactionInactive)
	if r := clean(t, rows); r.Blobs != 2 {
		t.Errorf("%+v", r)
	}
	_, err = idb.New(rows, nil).Open(ctx, "db", 2, func(ctx context.Context, u *idb.Upgrade) error {
		s := have[*idb.ObjectStore](t)(u.ObjectStore("store"))
		must(t, s.Delete(ctx, idb.KeyRange{}))
		return u.DeleteObjectStore(ctx, "gone")
	})
	must(t, err)
	r, _, err := rows.View(ctx)
	must(t, err)
	it := r.Iter(ordered.Prefix(indexeddb.PageStore(1, 1)))
	if it.Next(ctx) {
		t.Errorf("a row is left: %x", it.Key())
	}
	must(t, it.Close())
	clean(t, rows)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken") }

// TestMissingContent: a blob whose content is gone is damage.
func TestMissingContent(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[indexeddb.Key](t)(s.Put(ctx, &value.Blob{}, 1, blob("content")))
		have[indexeddb.Key](t)(s.Put(ctx, &value.Buffer{Bytes: bytes.Repeat([]byte{1}, 70_000), MaxLength: -1}, 2))
	})
	w := have[idb.RowsTx](t)(rows.Begin(ctx))
	for k := range 2 {
		key, _ := indexeddb.PageKey(nil, indexeddb.Row{Kind: indexeddb.KindContent, Database: 1, Store: 1, Primary: have[indexeddb.Key](t)(idb.Key(k + 1))})
		must(t, w.Delete(ctx, key))
	}
	must(t, w.Commit(ctx))
	s := begin(t, db, idb.ReadOnly, "store")
	_, err := have[*idb.Record](t)(s.Record(ctx, 1)).Open(ctx, 0)
	is(t, "open", err, base.ErrCorrupt)
	s.Tx().PreventDefault()
	_, err = s.Get(ctx, 2)
	is(t, "get", err, base.ErrCorrupt)
	s.Tx().PreventDefault()
	commit(t, s)
}
