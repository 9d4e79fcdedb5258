package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/records"
)

type benchNote struct {
	Title, Body string
	Tags        []string `ledger:"set"`
	Views       int64    `ledger:"counter"`
}

// BenchmarkRecords compares a collection with the same rows on a bare page, in one run: reads by
// key, reads by an index, and puts with three indexes, a thousand in a transaction. Times
// are of the processor; those of puts are medians of transactions by turns.
func BenchmarkRecords(b *testing.B) {
	ctx := context.Background()
	repo, err := ledger.Open(ctx, b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer repo.Close()
	open := func(name string) *ledger.Page {
		p, err := repo.Page(ctx, "bench", name)
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	bare, typed := open("bare"), open("typed")
	defer bare.Close()
	defer typed.Close()
	c, err := records.Open(ctx, typed, "notes", &records.Options[benchNote]{Indexes: []records.Index[benchNote]{
		{Name: "title", Unique: true, Keys: func(n *benchNote) [][]byte { return [][]byte{records.Key(n.Title)} }},
		{Name: "tag", Keys: func(n *benchNote) [][]byte { return [][]byte{records.Key(n.Tags[0])} }},
		{Name: "views", Keys: func(n *benchNote) [][]byte { return [][]byte{records.Key(n.Views)} }},
	}})
	if err != nil {
		b.Fatal(err)
	}
	const n, batch = 20_000, 1000
	note := func(i int) *benchNote {
		return &benchNote{Title: fmt.Sprint("title ", i), Body: "the body of a note, of some words", Tags: []string{fmt.Sprint("tag ", i%100)}, Views: int64(i)}
	}
	id := func(i int) string { return fmt.Sprintf("%08d", i) }
	timed := func(fn func() error) time.Duration {
		used := processorTime(b)
		if err := fn(); err != nil {
			b.Fatal(err)
		}
		return processorTime(b) - used
	}
	// update returns the time of a transaction that puts a batch of notes.
	update := func(p *ledger.Page, from int, put func(tx *ledger.Tx, i int) error) time.Duration {
		return timed(func() error {
			_, err := p.Update(ctx, func(tx *ledger.Tx) error {
				for i := from; i < from+batch; i++ {
					if err := put(tx, i); err != nil {
						return err
					}
				}
				return nil
			})
			return err
		})
	}
	bytes := func(v *benchNote) []byte {
		x, err := json.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		return x
	}
	for b.Loop() {
		var put pair
		from := map[*ledger.Page]int{}
		next := func(p *ledger.Page, fn func(tx *ledger.Tx, i int) error) func() time.Duration {
			return func() time.Duration { from[p] += batch; return update(p, from[p]-batch, fn) }
		}
		put.run(n/batch, next(typed, func(tx *ledger.Tx, i int) error { return c.In(tx).Put(ctx, id(i), note(i)) }),
			next(bare, func(tx *ledger.Tx, i int) error { return tx.Put(ctx, []byte(id(i)), bytes(note(i))) }))
		each := func(get func(i int) error) func() error {
			return func() error {
				for i := range n {
					if err := get(i * 7919 % n); err != nil {
						return err
					}
				}
				return nil
			}
		}
		get := timed(each(func(i int) error { _, err := c.Get(ctx, id(i)); return err }))
		find := timed(each(func(i int) error { _, err := c.Find(ctx, "title", records.Key(fmt.Sprint("title ", i))); return err }))
		bareGet := timed(each(func(i int) error {
			return bare.View(ctx, func(s *ledger.Snapshot) error {
				row, err := s.Get(ctx, []byte(id(i)))
				if err != nil {
					return err
				}
				return json.Unmarshal(row, new(benchNote))
			})
		}))
		b.ReportMetric(put.ratio(), "put/bare")
		b.ReportMetric(get.Seconds()/bareGet.Seconds(), "get/bare")
		b.ReportMetric(find.Seconds()/bareGet.Seconds(), "index/bare")
		b.ReportMetric(n/get.Seconds(), "get/s")
	}
}
