package bench

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger"
)

const (
	benchLedger = "bench"
	benchPage   = "million"
	// transactions is in how many transactions bbolt is filled.
	transactions = 10
)

var boltBucket = []byte("rows")

// seed returns bytes for generators of which each is made for one purpose.
func seed(purpose byte) (s [32]byte) {
	s[0] = purpose
	return s
}

func generator(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(20, purpose)) }

// dataset is a million sorted random keys of 16 bytes with random values of 100 bytes.
type dataset struct {
	keys   [][16]byte
	values [][100]byte
}

var million = sync.OnceValue(func() *dataset {
	n := scaled(1_000_000, 1000)
	d := &dataset{keys: make([][16]byte, n), values: make([][100]byte, n)}
	source := rand.NewChaCha8(seed(1))
	for i := range n {
		_, _ = source.Read(d.keys[i][:])
		_, _ = source.Read(d.values[i][:])
	}
	slices.SortFunc(d.keys, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return d
})

func (d *dataset) bytes() int { return len(d.keys) * 116 }

// fixtures are built once and only copied or read afterwards.
type fixtures struct {
	once sync.Once
	err  error
	repo string // a closed repository with the page
	bolt string // a closed bbolt file with the same rows
}

var built fixtures

// millionPage returns a closed repository whose page holds the million keys, for reading or
// copying.
func millionPage(b *testing.B) string {
	b.Helper()
	built.build(b)
	return built.repo
}

// millionBolt returns a closed bbolt file with the million keys, for reading or copying.
func millionBolt(b *testing.B) string {
	b.Helper()
	built.build(b)
	return built.bolt
}

func (x *fixtures) build(b *testing.B) {
	b.Helper()
	x.once.Do(func() {
		x.repo, x.bolt = filepath.Join(scratch, "million"), filepath.Join(scratch, "million.bolt")
		x.err = x.fill(b)
	})
	if x.err != nil {
		b.Fatalf("build the million keys: %v", x.err)
	}
}

func (x *fixtures) fill(b *testing.B) error {
	repo, page := openPage(b, x.repo, ledger.Options{})
	if err := putAll(b, page); err != nil {
		return err
	}
	closePage(b, repo, page)
	db, err := openBolt(x.bolt)
	if err != nil {
		return err
	}
	if err := boltPutAll(db); err != nil {
		return err
	}
	return db.Close()
}

// putAll puts the million keys in one transaction.
func putAll(b *testing.B, page *ledger.Page) error {
	d := million()
	_, err := page.Update(b.Context(), func(tx *ledger.Tx) error {
		for i := range d.keys {
			if err := tx.Put(b.Context(), d.keys[i][:], d.values[i][:]); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// openBolt opens bbolt as Ledger does: the freelist is synced, since opening a large file takes
// seconds otherwise.
func openBolt(path string) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("open bbolt: %w", err)
	}
	return db, nil
}

// boltPutAll puts the million keys in sorted order in ten transactions.
func boltPutAll(db *bbolt.DB) error {
	d := million()
	for part := range transactions {
		err := db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists(boltBucket)
			if err != nil {
				return err
			}
			for i := part * len(d.keys) / transactions; i < (part+1)*len(d.keys)/transactions; i++ {
				if err := bucket.Put(d.keys[i][:], d.values[i][:]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("fill bbolt: %w", err)
		}
	}
	return nil
}

// warm reads the whole page once, so that its nodes are in the cache.
func warm(b *testing.B, page *ledger.Page) {
	b.Helper()
	must(b, page.View(b.Context(), func(s *ledger.Snapshot) error {
		it := s.Iter(ledger.ScanOptions{})
		for it.Next(b.Context()) {
		}
		return it.Err()
	}))
}

// incompressible returns n random bytes, made once. Successive calls share them.
var incompressible = func() func(b *testing.B, n int) []byte {
	var all []byte
	return func(b *testing.B, n int) []byte {
		b.Helper()
		if len(all) < n {
			all = allocate(b, n)
			_, _ = rand.NewChaCha8(seed(2)).Read(all)
		}
		return all[:n]
	}
}()
