package ledger_test

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
)

func ExamplePage_Watch() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	changes := page.Watch(ctx, &ledger.WatchOptions{Prefix: []byte("color/")})
	for _, pair := range [][2]string{{"color/sky", "blue"}, {"size", "10"}, {"color/grass", "green"}, {"color/sky", "grey"}} {
		if _, err := page.Update(ctx, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte(pair[0]), []byte(pair[1])) }); err != nil {
			fmt.Println(err)
			return
		}
	}
	for n, err := range changes {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, c := range n.Changes {
			if c.New == nil {
				fmt.Printf("%s is gone\n", c.Key)
				continue
			}
			v, err := c.New.Value(ctx)
			fmt.Printf("%s is %s now %v\n", c.Key, v, err)
		}
		// Keep n.Resume where the changes are kept: a later Watch From it goes on there.
		break
	}
	// Output:
	// color/grass is green now <nil>
	// color/sky is grey now <nil>
}

func ExamplePage_Undo() {
	ctx := context.Background()
	page, done := examplePage(ctx)
	defer done()
	var last ledger.CommitID
	for _, color := range []string{"red", "green"} {
		id, err := page.Update(ctx, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte("color"), []byte(color)) })
		if err != nil {
			fmt.Println(err)
			return
		}
		last = id
	}
	undone, err := page.Undo(ctx, last, nil)
	fmt.Println(undone.Changed, undone.Kept, err)
	// Why tells of the commits that wrote the value; the first step is the newest.
	for step, err := range page.Why(ctx, undone.Commit, []byte("color")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		now, err := step.Entry.Value(ctx)
		fmt.Printf("%s: %s %v\n", step.Commit.Message[:4], now, err)
		before, err := step.Lost[0].Entry.Value(ctx)
		fmt.Printf("before: %s %v\n", before, err)
		break
	}
	// Output:
	// 1 0 <nil>
	// undo: red <nil>
	// before: green <nil>
}
