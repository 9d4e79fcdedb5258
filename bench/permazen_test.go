package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/pages"
)

// person has 8 fields and 3 indexes.
type person struct {
	_ struct{} `permazen:"cityAge:city,age"`

	Name   string             `permazen:"name,index"`
	Age    int32              `permazen:"age,index"`
	City   string             `permazen:"city"`
	Score  float64            `permazen:"score"`
	Member bool               `permazen:"member"`
	Born   encoding.LocalDate `permazen:"born"`
	Note   string             `permazen:"note"`
	Visits permazen.Counter   `permazen:"visits"`
}

func newPerson(rng *rand.Rand) *person {
	return &person{
		Name: fmt.Sprintf("name %d", rng.IntN(1_000_000)), Age: int32(rng.IntN(100)), City: fmt.Sprintf("city %d", rng.IntN(1000)), Score: rng.Float64(),
		Member: rng.IntN(2) == 0, Born: encoding.LocalDate(rng.IntN(20000)), Note: fmt.Sprintf("note %d", rng.Uint64()), Visits: permazen.Counter(rng.IntN(1000)),
	}
}

func peopleDB(b *testing.B, purpose byte) (*permazen.DB, *permazen.Collection[person]) {
	b.Helper()
	var models permazen.Models
	people, err := permazen.Define[person](&models, "Person")
	must(b, err)
	m, err := models.Model()
	must(b, err)
	db, err := permazen.New(m, &permazen.Options{Random: rand.NewChaCha8(seed(purpose))})
	must(b, err)
	return db, people
}

// recorder keeps the rows that are put.
type recorder struct {
	*ordered.Memory
	rows []ordered.Row
}

func (r *recorder) Put(ctx context.Context, key, value []byte) error {
	r.rows = append(r.rows, ordered.Row{Key: append([]byte{}, key...), Value: append([]byte{}, value...)})
	return r.Memory.Put(ctx, key, value)
}

const objectsInTransaction = 10_000

// create makes people in one transaction.
func create(ctx context.Context, tx *permazen.Tx, people *permazen.Collection[person], rng *rand.Rand) (refs []permazen.Ref[person], err error) {
	for range objectsInTransaction {
		r, err := people.Create(ctx, tx, newPerson(rng))
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}

// BenchmarkPermazenObjects creates a million objects with 8 fields and 3 indexes in transactions of
// 10 000, reads objects, and looks up ids by an index. Against it, the same rows are put in the
// same order and transactions, and read as rows. Then it checks all.
func BenchmarkPermazenObjects(b *testing.B) {
	ctx := context.Background()
	transactions := scaled(1_000_000, objectsInTransaction) / objectsInTransaction
	dir := tempDir(b)
	repoA, pageA := openPage(b, dir, ledger.Options{})
	repoB, pageB := openPage(b, tempDir(b), ledger.Options{})
	defer closePage(b, repoB, pageB)
	db, people := peopleDB(b, 60)
	again, peopleAgain := peopleDB(b, 60)
	objects := pages.Open(pageA, nil, db)
	var refs []permazen.Ref[person]
	var p pair
	for i := range transactions {
		memory := &recorder{Memory: ordered.NewMemory()}
		tx, err := again.Begin(ctx, memory)
		must(b, err)
		_, err = create(ctx, tx, peopleAgain, generator(uint64(100+i)))
		must(b, err)
		p.ours.add(settled(func() {
			_, err := objects.Update(ctx, func(tx *permazen.Tx) error {
				made, err := create(ctx, tx, people, generator(uint64(100+i)))
				refs = append(refs, made...)
				return err
			})
			must(b, err)
		}))
		p.theirs.add(settled(func() {
			_, err := pageB.Update(ctx, func(tx *ledger.Tx) error {
				for _, r := range memory.rows {
					if err := tx.Put(ctx, r.Key, r.Value); err != nil {
						return err
					}
				}
				return nil
			})
			must(b, err)
		}))
	}
	b.ReportMetric(p.ratio(), "create-ratio")
	b.ReportMetric(float64(objectsInTransaction)/p.ours.median().Seconds(), "creates/s")
	readPeople(b, objects, pageA, people, refs)
	queryPeople(b, objects, pageA)
	result, d := checkPeople(b, pageA, func(r ordered.Reader) ordered.Reader { return r })
	b.ReportMetric(float64(result.Rows)/d.Seconds(), "jsck-rows/s")
	closePage(b, repoA, pageA)
	repoA, pageA = openPage(b, dir, ledger.Options{CacheBytes: 1 << 20}) // what the cache takes is not what the check takes
	defer closePage(b, repoA, pageA)
	live := &liveReader{every: int(result.Rows / 20)}
	checkPeople(b, pageA, func(r ordered.Reader) ordered.Reader { live.Reader = r; return live })
	b.ReportMetric((slices.Max(live.bytes)-live.bytes[0])/(1<<20), "jsck-MiB")
}

// liveReader finds out how many bytes of heap are live, at the first row that is walked over and at
// each so many.
type liveReader struct {
	ordered.Reader
	every, rows int
	bytes       []float64
}

func (r *liveReader) Iter(rg ordered.Range) ordered.Iter { return &liveIter{r.Reader.Iter(rg), r} }

type liveIter struct {
	ordered.Iter
	of *liveReader
}

func (it *liveIter) Next(ctx context.Context) bool {
	if it.of.rows%it.of.every == 0 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		it.of.bytes = append(it.of.bytes, float64(m.HeapAlloc))
	}
	it.of.rows++
	return it.Iter.Next(ctx)
}

// readPeople reads random objects, and the rows of the same objects.
func readPeople(b *testing.B, objects *pages.DB, page *ledger.Page, people *permazen.Collection[person], refs []permazen.Ref[person]) {
	ctx := context.Background()
	rng := generator(61)
	n := min(20_000, len(refs))
	// Each round of each side has objects of its own: what one side has just read is in the caches.
	draw := func() []permazen.Ref[person] {
		order := make([]permazen.Ref[person], n)
		for i := range order {
			order[i] = refs[rng.IntN(len(refs))]
		}
		return order
	}
	var p pair
	must(b, page.View(ctx, func(s *ledger.Snapshot) error {
		tx, err := objects.At(ctx, s)
		must(b, err)
		rows := pages.Reader(s.Reader, nil)
		p.run(5, func() time.Duration {
			order := draw()
			return settled(func() {
				for _, r := range order {
					v, err := people.Get(ctx, tx, r)
					must(b, err)
					touched += int(v.Age)
				}
			})
		}, func() time.Duration {
			order := draw()
			return settled(func() {
				for _, r := range order {
					it := rows.Iter(ordered.Prefix(r.ID[:]))
					for it.Next(ctx) {
						v, err := it.Value(ctx)
						must(b, err)
						touched += len(v)
					}
					must(b, it.Err())
					must(b, it.Close())
				}
			})
		})
		return nil
	}))
	b.ReportMetric(p.ratio(), "read-ratio")
	b.ReportMetric(float64(n)/p.ours.median().Seconds(), "reads/s")
}

// queryPeople looks up the ids of objects by age, and walks over the same index rows.
func queryPeople(b *testing.B, objects *pages.DB, page *ledger.Page) {
	ctx := context.Background()
	var p pair
	ids := 0
	must(b, page.View(ctx, func(s *ledger.Snapshot) error {
		tx, err := objects.At(ctx, s)
		must(b, err)
		rows := pages.Reader(s.Reader, nil)
		x, err := tx.Index("Person", "age")
		must(b, err)
		age := tx.Schema().Named("Person").Field("age")
		p.run(5, func() time.Duration {
			ids = 0
			return settled(func() {
				for n := range int32(100) {
					found, err := x.Equal(n)
					must(b, err)
					for found.Next(ctx) {
						id := found.ID()
						touched += int(id[7])
						ids++
					}
					must(b, found.Err())
					must(b, found.Close())
				}
			})
		}, func() time.Duration {
			return settled(func() {
				for n := range int64(100) {
					rg := ordered.Prefix(encoding.AppendInt(append([]byte{}, age.Prefix...), n))
					rg.KeysOnly = true
					it := rows.Iter(rg)
					for it.Next(ctx) {
						touched += len(it.Key())
					}
					must(b, it.Err())
					must(b, it.Close())
				}
			})
		})
		return nil
	}))
	b.ReportMetric(p.ratio(), "query-ratio")
	b.ReportMetric(float64(ids)/p.ours.median().Seconds(), "ids/s")
}

func checkPeople(b *testing.B, page *ledger.Page, through func(ordered.Reader) ordered.Reader) (result jsck.Result, d time.Duration) {
	ctx := context.Background()
	must(b, page.View(ctx, func(s *ledger.Snapshot) error {
		d = settled(func() {
			var err error
			result, err = jsck.Check(ctx, through(pages.Reader(s.Reader, nil)), nil)
			must(b, err)
		})
		return nil
	}))
	if result.Issues > 0 {
		b.Fatalf("%+v", result)
	}
	return result, d
}
