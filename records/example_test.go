package records_test

import (
	"context"
	"fmt"

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

// check ends an example that fails.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
