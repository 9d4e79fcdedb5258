package ledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/keys"
)

// Hello with sync. What is put reaches the bucket by itself; Sync is for a program that wants to
// know when.
func Example_sync() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "ledger-example-")
	check(err)
	defer os.RemoveAll(home)
	key, dir, bucket := filepath.Join(home, "key"), filepath.Join(home, "repository"), filepath.Join(home, "bucket")

	check(keys.CreateFile(key, nil)) // once: copy the file to each device
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

	fmt.Printf("%s, %d commits to send\n", value, repo.SyncStates()[0].Unsynced)
	// Output: hello, 0 commits to send
}

// check ends an example that fails.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// exampleDevice opens a repository in memory that is a device of a bucket. It syncs when it is
// told.
func exampleDevice(ctx context.Context, bucket, key string) *ledger.Repository {
	repo, err := ledger.Open(ctx, "", &ledger.Options{
		InMemory: true, Sync: ledger.SyncOptions{Manual: true},
		Cloud: &ledger.Cloud{URL: "dir:" + bucket, KeyFile: key},
	})
	check(err)
	return repo
}

// Two devices write without each other, and come to the same content.
func Example_twoDevices() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "ledger-example-")
	check(err)
	defer os.RemoveAll(home)
	key, bucket := filepath.Join(home, "key"), filepath.Join(home, "bucket")
	check(keys.CreateFile(key, nil))

	var pages []*ledger.Page
	for _, name := range []string{"phone", "laptop"} {
		repo := exampleDevice(ctx, bucket, key)
		defer repo.Close()
		page, err := repo.Page(ctx, "notes", "inbox")
		check(err)
		check(page.Put(ctx, []byte(name), []byte("was here")))
		pages = append(pages, page)
	}
	for _, i := range []int{0, 1, 0} { // the first one comes again for what the second one has sent
		check(pages[i].Sync(ctx))
	}
	for _, page := range pages {
		var keys []string
		check(page.View(ctx, func(s *ledger.Snapshot) error {
			for e, err := range s.Scan(ctx, ledger.ScanOptions{}) {
				check(err)
				keys = append(keys, string(e.Key))
			}
			return nil
		}))
		fmt.Println(keys)
	}
	// Output:
	// [laptop phone]
	// [laptop phone]
}

// A page that the cloud has leaves the device, and comes back when it is opened.
func Example_evict() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "ledger-example-")
	check(err)
	defer os.RemoveAll(home)
	key := filepath.Join(home, "key")
	check(keys.CreateFile(key, nil))
	repo := exampleDevice(ctx, filepath.Join(home, "bucket"), key)
	defer repo.Close()
	page, err := repo.Page(ctx, "notes", "old")
	check(err)
	check(page.Put(ctx, []byte("k"), []byte("still there")))
	check(page.Sync(ctx))
	ref := ledger.PageRef{Ledger: "notes", ID: page.Ref().ID}
	check(page.Close())

	_, err = admin.Evict(ctx, repo, &admin.EvictOptions{Pages: []ledger.PageRef{ref}})
	check(err)
	infos, err := repo.Pages(ctx)
	check(err)
	fmt.Println(infos[0].Name, infos[0].State)
	page, err = repo.Page(ctx, "notes", "old")
	check(err)
	defer page.Close()
	value, err := page.Get(ctx, []byte("k"))
	fmt.Println(string(value), err)
	// Output:
	// old evicted
	// still there <nil>
}

// Each commit stays readable: time travel.
func ExamplePage_At() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	before, err := page.Update(ctx, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte("color"), []byte("red")) })
	check(err)
	check(page.Put(ctx, []byte("color"), []byte("green")))
	old, err := page.At(ctx, before)
	check(err)
	defer old.Close()
	was, err := old.Get(ctx, []byte("color"))
	check(err)
	is, err := page.Get(ctx, []byte("color"))
	check(err)
	fmt.Printf("%s, then %s\n", was, is)
	// Output: red, then green
}
