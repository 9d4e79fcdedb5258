package ledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledger"
)

// Hello with sync. What is put reaches the bucket by itself; Sync is for a program that wants to know when.
func Example_sync() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "ledger-example-")
	check(err)
	defer os.RemoveAll(home)
	key := filepath.Join(home, "key") // made once, and copied to each device
	check(ledger.CreateKeyFile(key))
	dir, bucket := filepath.Join(home, "repository"), filepath.Join(home, "bucket")

	repo, err := ledger.Open(ctx, dir, &ledger.Options{Cloud: &ledger.Cloud{URL: "dir:" + bucket, KeyFile: key}})
	check(err)
	defer repo.Close()
	page, err := repo.Page(ctx, "notes", "inbox")
	check(err)
	defer page.Close()
	check(page.Put(ctx, []byte("greeting"), []byte("hello")))
	value, err := page.Get(ctx, []byte("greeting"))
	check(err)
	_, err = repo.Sync(ctx)
	check(err)

	fmt.Printf("%s, %d commits to send\n", value, page.SyncState().Unsynced)
	// Output: hello, 0 commits to send
}

// check ends an example that fails.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
