package records_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/records"
)

// Song is a record.
type Song struct {
	Title string
	Rank  int
}

// Values of a Go type on a page, found by an index.
func Example() {
	ctx := context.Background()
	options := &records.Options[Song]{
		Indexes: []records.Index[Song]{
			{Name: "rank", Keys: func(n *Song) [][]byte { return [][]byte{records.Key(n.Rank)} }},
		},
	}
	rule, err := records.MergeRule("songs", options) // heads may be merged before records.Open
	check(err)
	repo, err := ledger.Open(ctx, "", &ledger.Options{
		InMemory:   true,
		MergeRules: func(string, ledger.PageID) []ledger.MergeRule { return []ledger.MergeRule{rule} },
	})
	check(err)
	defer repo.Close()
	page, err := repo.Page(ctx, "example", "songs")
	check(err)

	songs, err := records.Open(ctx, page, "songs", options)
	check(err)
	check(songs.Put(ctx, "n1", &Song{Title: "hello", Rank: 2}))
	check(songs.Put(ctx, "n2", &Song{Title: "again", Rank: 1}))
	for r, err := range songs.Query(ctx, records.Query{Index: "rank", Limit: 20}) {
		check(err)
		fmt.Println(r.ID, r.Value.Title)
	}
	// Output:
	// n2 again
	// n1 hello
}

// The versions of a record that a merge has dropped. Here two transactions stand for two devices.
func ExampleCollection_PageKey() {
	ctx := context.Background()
	var clock atomic.Int64
	repo, err := ledger.Open(ctx, "", &ledger.Options{
		InMemory: true,
		Now:      func() time.Time { return time.Unix(clock.Add(1), 0) },
	})
	check(err)
	defer repo.Close()
	page, err := repo.Page(ctx, "example", "songs")
	check(err)
	songs, err := records.Open[Song](ctx, page, "songs", nil)
	check(err)
	check(songs.Put(ctx, "n1", &Song{Title: "hello"}))
	phone, err := page.Begin(ctx, nil)
	check(err)
	laptop, err := page.Begin(ctx, nil)
	check(err)
	check(songs.In(phone).Put(ctx, "n1", &Song{Title: "hello, sun"}))
	_, err = phone.Commit(ctx)
	check(err)
	check(songs.In(laptop).Put(ctx, "n1", &Song{Title: "hello, moon"}))
	_, err = laptop.Commit(ctx)
	check(err)
	check(page.WaitForMerge(ctx))

	now, err := songs.Get(ctx, "n1")
	check(err)
	for step, err := range page.Why(ctx, ledger.CommitID{}, songs.PageKey("n1")) {
		check(err)
		if step.Rule != records.Rule {
			continue // a write, or a merge that has kept all changes
		}
		for _, lost := range step.Lost {
			snapshot, err := page.At(ctx, lost.Parent.ID)
			check(err)
			other, err := songs.At(snapshot).Get(ctx, "n1") // ErrNotFound: it was deleted there
			check(err)
			check(snapshot.Close())
			fmt.Printf("now %q, lost %q\n", now.Title, other.Title)
		}
	}
	// Output: now "hello, moon", lost "hello, sun"
}

// check ends an example that fails.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
