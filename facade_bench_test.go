package ledger_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ledgerd/ledger"
)

// benchPage returns a page in memory with n short values.
func benchPage(b *testing.B, n int) *ledger.Page {
	b.Helper()
	repo, err := ledger.Open(b.Context(), "", &ledger.Options{InMemory: true, ManualMerge: true, Collection: ledger.CollectionOptions{Off: true}})
	if err != nil {
		b.Fatal(err)
	}
	page, err := repo.Page(b.Context(), "app", "page")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := repo.Close(); err != nil {
			b.Error(err)
		}
	})
	_, err = page.Update(b.Context(), func(tx *ledger.Tx) error {
		for i := range n {
			if err := tx.Put(b.Context(), benchKey(i), []byte("some short value of a key")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return page
}

func benchKey(i int) []byte { return fmt.Appendf(nil, "key-%06d", i) }

// BenchmarkFacade measures what a call costs when nothing waits for a disk.
func BenchmarkFacade(b *testing.B) {
	const entries = 10000
	page := benchPage(b, entries)
	ctx := context.Background()
	key, value := benchKey(entries/2), []byte("some short value of a key")
	run := func(name string, fn func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("page-get", func() error {
		_, err := page.Get(ctx, key)
		return err
	})
	snapshot, err := page.Snapshot(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = snapshot.Close() }()
	run("get", func() error {
		_, err := snapshot.Get(ctx, key)
		return err
	})
	run("iter", func() error {
		it := snapshot.Iter(ledger.ScanOptions{})
		n := 0
		for it.Next(ctx) {
			n += len(it.Key())
		}
		return it.Err()
	})
	run("scan", func() error {
		for _, err := range snapshot.Scan(ctx, ledger.ScanOptions{Limit: 1000}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	n := 0
	run("put", func() error {
		n++
		return page.Put(ctx, benchKey(n%entries), fmt.Appendf(value[:20:20], "%d", n))
	})
	tx, err := page.Begin(ctx, nil)
	if err != nil {
		b.Fatal(err)
	}
	run("tx-put", func() error { return tx.Put(ctx, key, value) })
	if err := tx.Rollback(); err != nil {
		b.Fatal(err)
	}
}
