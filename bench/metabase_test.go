package bench

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/keyspace"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/catalog"
	"github.com/ledgerd/ledger/ordered"
)

var metabaseContainer = metabase.ID{1}

// metadataRows returns the rows that a search reads of n objects with the attributes Kind, of 10
// values, and Size, sorted. The other rows of an object are left out: no search reads them.
func metadataRows(n int) [][]byte {
	rows := make([][]byte, 0, 6*n)
	for i := range n {
		id := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
		kind, size := fmt.Sprint("kind", i%10), strconv.Itoa(i)
		number := make([]byte, 33)
		number[0] = 1
		binary.BigEndian.PutUint64(number[25:], uint64(i))
		rows = append(rows, slices.Concat([]byte{0}, id[:]),
			slices.Concat([]byte("\x01Size\x00"), number, id[:]),
			slices.Concat([]byte("\x02Kind\x00"+kind+"\x00"), id[:]), slices.Concat([]byte("\x02Size\x00"+size+"\x00"), id[:]),
			slices.Concat([]byte{3}, id[:], []byte("Kind\x00"+kind)), slices.Concat([]byte{3}, id[:], []byte("Size\x00"+size)))
	}
	slices.SortFunc(rows, bytes.Compare)
	return rows
}

// BenchmarkCatalogSearch asks for the first page of 100 of a million objects, with two filters of
// which the first is met by a tenth and the second by half, with the attributes of both. In a file
// and on a page, warm.
func BenchmarkCatalogSearch(b *testing.B) {
	rows := metadataRows(scaled(1_000_000, 10_000))
	bucket := append([]byte{255}, metabaseContainer[:]...)
	queries := map[string]metabase.Query{
		"sorted": {Attributes: []string{"Kind", "Size"}},
		"by-id":  {},
	}
	run := func(b *testing.B, v *metabase.View) {
		for name, q := range queries {
			b.Run(name, func(b *testing.B) {
				q.Container, q.Count = metabaseContainer, 100
				q.Filters = []metabase.Filter{{Key: "Kind", Op: metabase.Equal, Value: "kind3"}, {Key: "Size", Op: metabase.GreaterOrEqual, Value: strconv.Itoa(len(rows) / 12)}}
				var took samples
				for range 3 { // warm
					_, _, err := v.Search(b.Context(), q)
					must(b, err)
				}
				for b.Loop() {
					for range 50 {
						took.add(timed(func() {
							found, cursor, err := v.Search(b.Context(), q)
							must(b, err)
							if len(found) != 100 || cursor == "" {
								b.Fatalf("%d objects", len(found))
							}
						}))
					}
				}
				b.ReportMetric(ms(took.median()), "ms")
				b.ReportMetric(ms(took.percentile(0.99)), "p99-ms")
			})
		}
	}
	b.Run("file", func(b *testing.B) {
		path := filepath.Join(tempDir(b), "meta.db")
		f, err := metabase.OpenFile(b.Context(), path, metabase.FileOptions{NoSync: true})
		must(b, err)
		must(b, f.Close())
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, FreelistType: bbolt.FreelistMapType})
		must(b, err)
		for part := range slices.Chunk(rows, 500_000) {
			must(b, db.Update(func(tx *bbolt.Tx) error {
				bucket, err := tx.CreateBucketIfNotExists(bucket)
				for _, row := range part {
					if err == nil {
						err = bucket.Put(row, []byte{})
					}
				}
				return err
			}))
		}
		must(b, db.Close())
		f, err = metabase.OpenFile(b.Context(), path, metabase.FileOptions{Mode: metabase.ReadOnly, Epoch: func() uint64 { return 100 }})
		must(b, err)
		must(b, f.View(b.Context(), func(v *metabase.View) error { run(b, v); return nil }))
		must(b, f.Close())
	})
	b.Run("page", func(b *testing.B) {
		repo, page := openPage(b, filepath.Join(tempDir(b), "repo"), ledger.Options{})
		_, err := page.Update(b.Context(), func(tx *ledger.Tx) error {
			for _, row := range rows {
				key, err := keyspace.Escaped{}.Encode([][]byte{[]byte(metabase.Namespace), bucket}, row)
				if err == nil {
					err = tx.Put(b.Context(), key, nil)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		must(b, err)
		must(b, page.View(b.Context(), func(s *ledger.Snapshot) error {
			v, err := catalog.Read(b.Context(), s.Reader, 100)
			must(b, err)
			run(b, v)
			return nil
		}))
		closePage(b, repo, page)
	})
}

// metabaseBatch returns 100 objects with 10 attributes each.
func metabaseBatch(b *testing.B, n int) (objects [][]byte) {
	b.Helper()
	owner := metabase.NewOwner([20]byte{1})
	for i := range 100 {
		hash := sha256.Sum256(fmt.Append(nil, n, " ", i))
		o := &metabase.Object{Container: metabaseContainer, Owner: owner[:], Major: 2, Minor: 17, PayloadBytes: 1000, PayloadHash: hash[:]}
		for a := range 10 {
			o.Attributes = append(o.Attributes, metabase.Attribute{Key: fmt.Sprint("Attribute", a), Value: fmt.Sprint("value ", (n*100+i)*7919%(10<<a))})
		}
		object, err := metabase.NewObject(o)
		must(b, err)
		objects = append(objects, object)
	}
	return objects
}

// BenchmarkCatalogPut puts 100 objects with 10 attributes each into a file in one durable
// transaction, and compares with putting the same rows, sorted, into the same buckets by bbolt
// alone.
func BenchmarkCatalogPut(b *testing.B) {
	dir := tempDir(b)
	f, err := metabase.OpenFile(b.Context(), filepath.Join(dir, "ours.db"), metabase.FileOptions{})
	must(b, err)
	db, err := bbolt.Open(filepath.Join(dir, "theirs.db"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	must(b, err)
	var p pair
	n := 0
	for b.Loop() {
		for range scaled(100, 5) {
			n++
			objects := metabaseBatch(b, n)
			rows := flatRows(b, objects)
			ours := func() time.Duration {
				return timed(func() {
					must(b, f.Update(b.Context(), func(m *metabase.Tx) error {
						for _, o := range objects {
							if _, err := m.Put(b.Context(), o, nil); err != nil {
								return err
							}
						}
						return nil
					}))
				})
			}
			theirs := func() time.Duration {
				return timed(func() { must(b, db.Update(func(tx *bbolt.Tx) error { return putRows(tx, rows) })) })
			}
			p.run(1, ours, theirs)
		}
	}
	b.ReportMetric(p.ratio(), "ratio")
	b.ReportMetric(ms(p.ours.median()), "ms")
	b.ReportMetric(ms(p.theirs.median()), "bbolt-ms")
	must(b, f.Close())
	must(b, db.Close())
}

type flatRow struct {
	path       [][]byte
	key, value []byte
}

// flatRows returns the rows of objects in order.
func flatRows(b *testing.B, objects [][]byte) (rows []flatRow) {
	b.Helper()
	memory := ordered.NewMemory()
	m, err := metabase.Write(b.Context(), memory, 0)
	must(b, err)
	for _, o := range objects {
		_, err := m.Put(b.Context(), o, nil)
		must(b, err)
	}
	for row, err := range ordered.Rows(b.Context(), memory, ordered.Range{}) {
		must(b, err)
		path, key, err := keyspace.Escaped{}.Decode(row.Key)
		must(b, err)
		rows = append(rows, flatRow{path[1:], key, row.Value})
	}
	return rows
}

func putRows(tx *bbolt.Tx, rows []flatRow) error {
	for _, row := range rows {
		bucket, err := tx.CreateBucketIfNotExists(row.path[0])
		if err == nil && len(row.path) > 1 {
			bucket, err = bucket.CreateBucketIfNotExists(row.path[1])
		}
		if err == nil {
			err = bucket.Put(row.key, row.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
