package idb_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// A library has books, which are found by their authors. On a page of Ledger, pages.Rows of package
// indexeddb/pages is in the place of NewMemory, and each transaction is a commit.
func Example() {
	ctx := context.Background()
	f := idb.New(idb.NewMemory(), &idb.Options{Origin: "https_library.example_0@1"})
	db, err := f.Open(ctx, "library", 1, func(ctx context.Context, u *idb.Upgrade) error {
		books, err := u.CreateObjectStore("books", &idb.StoreOptions{KeyPath: idb.Path("isbn")})
		if err != nil {
			return err
		}
		_, err = books.CreateIndex(ctx, "by author", idb.Path("author"), nil)
		return err
	})
	check(err)

	tx, err := db.Begin(ctx, idb.ReadWrite, "books")
	check(err)
	defer tx.Abort() // does nothing after Commit
	books, err := tx.ObjectStore("books")
	check(err)
	_, err = books.Put(ctx, value.NewObject("isbn", 123456.0, "title", "Quarry Memories", "author", "Fred"), nil)
	check(err)
	_, err = books.Put(ctx, value.NewObject("isbn", 234567.0, "title", "Water Buffaloes", "author", "Fred"), nil)
	check(err)
	text := "Once upon a time, in Bedrock"
	_, err = books.Put(ctx, value.NewObject("isbn", 345678.0, "title", "Bedrock Nights", "author", "Barney", "text", &value.Blob{}), nil,
		idb.Blob{Type: "text/plain", Size: int64(len(text)), Content: strings.NewReader(text)})
	check(err)
	check(tx.Commit(ctx))

	tx, err = db.Begin(ctx, idb.ReadOnly, "books")
	check(err)
	defer tx.Abort()
	books, err = tx.ObjectStore("books")
	check(err)
	byAuthor, err := books.Index("by author")
	check(err)
	c, err := byAuthor.OpenCursor(ctx, idb.LowerBound("Barney", true), idb.Prev)
	check(err)
	defer c.Close()
	for !c.Done() {
		v, err := c.Value(ctx)
		check(err)
		title, _ := v.(*value.Object).Get("title")
		fmt.Println(c.Key(), c.PrimaryKey(), title)
		check(c.Continue(ctx, nil))
	}
	book, err := books.Record(ctx, 345678)
	check(err)
	content, err := book.Open(ctx, 0)
	check(err)
	defer content.Close()
	b, err := io.ReadAll(content)
	check(err)
	fmt.Printf("%s\n", b)
	// Output:
	// "Fred" 234567 Water Buffaloes
	// "Fred" 123456 Quarry Memories
	// Once upon a time, in Bedrock
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
