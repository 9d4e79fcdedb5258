package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/keys"
	"github.com/ledgerd/ledger/rules"
)

// The texts of these examples are those of the README and of docs/.

// Changes that belong together are one transaction, and reads that belong together one snapshot.
func Example_transaction() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	var err error

	_, err = page.Update(ctx, func(tx *ledger.Tx) error {
		return tx.Put(ctx, []byte("color/sky"), []byte("blue"))
	})
	check(err)
	err = page.View(ctx, func(s *ledger.Snapshot) error {
		for e, err := range s.Scan(ctx, ledger.ScanOptions{Prefix: []byte("color/")}) {
			if err != nil {
				return err
			}
			fmt.Printf("%s: %d bytes\n", e.Key, e.Size)
		}
		return nil
	})
	check(err)
	// Output: color/sky: 4 bytes
}

// KindOf says what to do about an error, and errors.Is what caused it.
func ExampleKindOf() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()

	_, err := page.Get(ctx, []byte("color"))
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		fmt.Println("no color yet")
	case ledger.KindOf(err) == ledger.KindUnavailable:
		fmt.Println("later")
	default:
		check(err)
	}
	// Output: no color yet
}

// Rules say what becomes of keys that both sides have changed.
func ExampleMergeRule() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ledger-example-")
	check(err)
	defer os.RemoveAll(dir)

	merges := []ledger.MergeRule{
		{Prefix: []byte("count/"), Strategy: rules.Counter()},
		{Prefix: []byte("tags/"), Strategy: rules.SetUnion()},
	}
	repo, err := ledger.Open(ctx, dir, &ledger.Options{
		MergeRules: func(ledgerName string, page ledger.PageID) []ledger.MergeRule { return merges },
	})
	check(err)
	defer repo.Close()
	page, err := repo.Page(ctx, "notes", "inbox")
	check(err)
	defer page.Close()
	fmt.Println(apart(ctx, page, "count/visits", "11", "15"))
	// Output: 26
}

// apart puts two values under a key in transactions that do not know of each other, and returns
// what the page has once they are merged.
func apart(ctx context.Context, page *ledger.Page, key, one, other string) string {
	base, err := page.Refresh(ctx)
	check(err)
	for _, value := range []string{one, other} {
		tx, err := page.Begin(ctx, &ledger.TxOptions{Base: base})
		check(err)
		check(tx.Put(ctx, []byte(key), []byte(value)))
		_, err = tx.Commit(ctx)
		check(err)
	}
	check(page.WaitForMerge(ctx))
	_, err = page.Refresh(ctx)
	check(err)
	value, err := page.Get(ctx, []byte(key))
	check(err)
	return string(value)
}

// A resolver of the app decides one conflict at a time.
func ExampleResolver() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()

	longest := ledger.Resolver(func(ctx context.Context, c *ledger.MergeConflict) (ledger.Resolution, error) {
		switch {
		case c.Left == nil: // removed there, changed here: keep it
			return ledger.Resolution{Take: ledger.TakeRight, Rule: "keep edits"}, nil
		case c.Right == nil:
			return ledger.Resolution{Take: ledger.TakeLeft, Rule: "keep edits"}, nil
		case c.Left.Size > c.Right.Size:
			return ledger.Resolution{Take: ledger.TakeLeft, Rule: "longest"}, nil
		case c.Left.Size < c.Right.Size:
			return ledger.Resolution{Take: ledger.TakeRight, Rule: "longest"}, nil
		}
		left, err := c.Left.Value(ctx)
		if err != nil {
			return ledger.Resolution{}, err
		}
		right, err := c.Right.Value(ctx)
		if err != nil {
			return ledger.Resolution{}, err
		}
		if bytes.Compare(left, right) > 0 {
			return ledger.Resolution{Take: ledger.TakeLeft, Rule: "longest"}, nil
		}
		return ledger.Resolution{Take: ledger.TakeRight, Rule: "longest"}, nil
	})
	page.SetMergeRules(ledger.MergeRule{Strategy: ledger.Automatic(longest)})

	fmt.Println(apart(ctx, page, "body", "a long text", "short"))
	// Output: a long text
}

// A strategy owns a namespace in which several keys make a record.
type people struct{}

func (people) Name() string { return "people" }

// Group maps person/ID and by-city/CITY/ID to ID.
func (people) Group(key []byte) []byte { return key[bytes.LastIndexByte(key, '/')+1:] }

func (people) MergeGroup(ctx context.Context, m *rules.Merge, g *rules.Group) error {
	side, err := g.Newest(ctx)
	if err != nil {
		return err
	}
	return g.Take(ctx, side)
}

func (people) Finish(ctx context.Context, m *rules.Merge) error { return nil }

func Example_groupStrategy() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	page.SetMergeRules(ledger.MergeRule{Prefix: []byte("person/"), Strategy: rules.Grouped(people{})})
	fmt.Println(apart(ctx, page, "person/7", "Ann, Rome", "Ann, Oslo"))
	// Output: Ann, Oslo
}

// A watch goes on where the one before it has ended, also after a restart: the app keeps
// Resume of the last notification.
func ExampleNotification() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	apply := func(key []byte, _, is *ledger.Entry) { fmt.Printf("%s, removed: %t\n", key, is == nil) }
	var last ledger.CommitID
	follow := func() error {
		head, err := page.Refresh(ctx)
		check(err)
		for n, err := range page.Watch(ctx, &ledger.WatchOptions{Prefix: []byte("inbox/"), From: last}) {
			if err != nil {
				return err
			}
			for _, c := range n.Changes {
				apply(c.Key, c.Old, c.New) // New is nil when the key was removed
			}
			last = n.Resume
			if n.Commit.ID == head {
				break
			}
		}
		return nil
	}
	check(page.Put(ctx, []byte("inbox/1"), []byte("hello")))
	last = ledger.FirstCommit()
	check(follow())
	check(page.Put(ctx, []byte("inbox/2"), []byte("again")))
	check(page.Delete(ctx, []byte("inbox/1")))
	check(follow())
	// Output:
	// inbox/1, removed: false
	// inbox/1, removed: true
	// inbox/2, removed: false
}

// A page in the cloud: what is put is sent by itself, and a program can wait for it.
func ExamplePage_WaitSynced() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "ledger-example-")
	check(err)
	defer os.RemoveAll(home)
	key := filepath.Join(home, "key")
	check(keys.CreateFile(key, nil))
	repo := exampleDevice(ctx, filepath.Join(home, "bucket"), key)
	defer repo.Close()
	page, err := repo.Page(ctx, "notes", "inbox")
	check(err)
	commit, err := page.Update(ctx, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte("greeting"), []byte("hello")) })
	check(err)

	err = page.Sync(ctx) // a barrier, when one is wanted
	check(err)
	err = page.WaitSynced(ctx, commit) // this commit is in the bucket
	check(err)
	for states, err := range repo.WatchSync(ctx) {
		check(err)
		fmt.Println(states[0].Unsynced, "commits to send")
		break
	}
	// Output: 0 commits to send
}
