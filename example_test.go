package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/rules"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ledger-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	repo, err := ledger.Open(ctx, dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer repo.Close()
	page, err := repo.Page(ctx, "notes", "inbox")
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()

	if err := page.Put(ctx, []byte("greeting"), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	value, err := page.Get(ctx, []byte("greeting"))
	fmt.Println(string(value), err)
	// Output: hello <nil>
}

// examplePage returns a page in memory.
func examplePage(ctx context.Context) (*ledger.Page, func()) {
	repo, err := ledger.Open(ctx, "", &ledger.Options{InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
	page, err := repo.Page(ctx, "example", "page")
	if err != nil {
		log.Fatal(err)
	}
	return page, func() {
		if err := repo.Close(); err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleSnapshot_Scan() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	if _, err := page.Update(ctx, func(tx *ledger.Tx) error {
		for _, k := range []string{"fruit/apple", "fruit/pear", "tree/oak"} {
			if err := tx.Put(ctx, []byte(k), []byte("1")); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	if err := page.View(ctx, func(s *ledger.Snapshot) error {
		for e, err := range s.Scan(ctx, ledger.ScanOptions{Prefix: []byte("fruit/")}) {
			if err != nil {
				return err
			}
			fmt.Println(string(e.Key), e.Size)
		}
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// fruit/apple 1
	// fruit/pear 1
}

func ExampleTx_PutReader() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	if _, err := page.Update(ctx, func(tx *ledger.Tx) error {
		film := strings.NewReader(strings.Repeat("frame ", 100_000))
		return tx.PutReader(ctx, []byte("film"), film, film.Size(), ledger.Lazy)
	}); err != nil {
		log.Fatal(err)
	}
	if err := page.View(ctx, func(s *ledger.Snapshot) error {
		v, err := s.Open(ctx, []byte("film"))
		if err != nil {
			return err
		}
		defer v.Close()
		if _, err := v.Seek(-12, io.SeekEnd); err != nil {
			return err
		}
		end, err := io.ReadAll(v)
		fmt.Printf("%d bytes, ending with %q\n", v.Size(), end)
		return err
	}); err != nil {
		log.Fatal(err)
	}
	// Output: 600000 bytes, ending with "frame frame "
}

func ExamplePage_Begin() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	tx, err := page.Begin(ctx, &ledger.TxOptions{FailOnConflict: true})
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if err := tx.Put(ctx, []byte("k"), []byte("mine")); err != nil {
		log.Fatal(err)
	}
	// Meanwhile somebody else commits.
	if _, err := page.Update(ctx, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte("k"), []byte("theirs")) }); err != nil {
		log.Fatal(err)
	}
	_, err = tx.Commit(ctx)
	fmt.Println(errors.Is(err, ledger.ErrConflict))
	// Output: true
}

func ExamplePage_Diff() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	put := func(k, v string) ledger.CommitID {
		id, err := page.Update(ctx, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte(k), []byte(v)) })
		if err != nil {
			log.Fatal(err)
		}
		return id
	}
	old := put("a", "1")
	put("b", "2")
	head := put("a", "one")
	for c, err := range page.Diff(ctx, old, head, nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(c.Key), c.Old != nil, c.New != nil)
	}
	// Output:
	// a true true
	// b false true
}

// Two transactions on one base make two heads. They come together in the background; here the
// program waits for that. The counter has a rule of its own, for everything else the last one wins.
func ExamplePage_WaitForMerge() {
	ctx := context.Background()
	page, closeAll := examplePage(ctx)
	defer closeAll()
	page.SetMergeRules(ledger.MergeRule{Prefix: []byte("visits"), Strategy: rules.Counter()})
	base, err := page.Update(ctx, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte("visits"), []byte("10")) })
	if err != nil {
		log.Fatal(err)
	}
	var txs []*ledger.Tx
	for _, n := range []string{"11", "15"} {
		tx, err := page.Begin(ctx, &ledger.TxOptions{Base: base})
		if err != nil {
			log.Fatal(err)
		}
		if err := tx.Put(ctx, []byte("visits"), []byte(n)); err != nil {
			log.Fatal(err)
		}
		txs = append(txs, tx)
	}
	for _, tx := range txs {
		if _, err := tx.Commit(ctx); err != nil {
			log.Fatal(err)
		}
	}
	if err := page.WaitForMerge(ctx); err != nil {
		log.Fatal(err)
	}
	err = page.View(ctx, func(s *ledger.Snapshot) error {
		v, err := s.Get(ctx, []byte("visits"))
		fmt.Printf("%s visits\n", v)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 16 visits
}
