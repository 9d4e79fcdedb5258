package admin_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/ledgertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestInside: what is told of the inside of a page is what was put into it.
func TestInside(t *testing.T) {
	ctx := t.Context()
	page := ledgertest.Page(t, ledgertest.Open(t), "app", "main")
	long := make([]byte, 300<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range long {
		long[i] = byte(random.Uint32())
	}
	id, err := page.Update(ctx, func(tx *ledger.Tx) error {
		return errors.Join(tx.Put(ctx, []byte("short"), []byte("v")), tx.Put(ctx, []byte("long"), long))
	})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := admin.Tree(ctx, page, id)
	if err != nil || tree.Entries != 2 || tree.InlineEntries != 1 || tree.InlineBytes != 1 || tree.ValueBytes != int64(len(long)) {
		t.Errorf("%+v %v", tree, err)
	}
	var nodes, nodeBytes int64
	for n, err := range admin.Nodes(ctx, page, id) {
		if err != nil {
			t.Fatal(err)
		}
		nodes, nodeBytes = nodes+1, nodeBytes+int64(n.Bytes)
	}
	if nodes != tree.Nodes || nodeBytes != tree.NodeBytes {
		t.Errorf("%d nodes of %d bytes, the tree has %+v", nodes, nodeBytes, tree)
	}
	err = page.View(ctx, func(s *ledger.Snapshot) error {
		chunks := int64(0)
		for p, err := range admin.Pieces(ctx, s, []byte("long")) {
			if err != nil {
				return err
			}
			if p.Kind == "chunk" {
				chunks += p.Size
			}
		}
		if chunks != int64(len(long)) {
			t.Errorf("chunks of %d bytes", chunks)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	heads := 0
	for row, err := range admin.Rows(ctx, page, "heads") {
		if err != nil {
			t.Fatal(err)
		}
		if heads++; !strings.Contains(row.Key, id.String()) {
			t.Errorf("row %q", row.Key)
		}
	}
	if heads != 1 {
		t.Errorf("%d rows of heads", heads)
	}
}

// TestKeepsNewest: a collection with a retention gives up what is older, a dry run nothing, and the
// page is whole after it.
func TestKeepsNewest(t *testing.T) {
	ctx := t.Context()
	repo := ledgertest.Open(t)
	page := ledgertest.Page(t, repo, "app", "main")
	for i := range 5 {
		if err := page.Put(ctx, []byte("key"), bytes.Repeat([]byte{byte(i)}, 10<<10)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dry := range []bool{true, false} {
		pages, err := admin.Collect(ctx, repo, &admin.CollectOptions{Retention: &admin.Retention{Commits: 2}, DryRun: dry})
		if err != nil || len(pages) != 1 || pages[0].Pruned < 3 {
			t.Fatalf("%+v %v", pages, err)
		}
	}
	n := 0
	for c, err := range page.Log(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Generation != 0 {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d commits are kept", n)
	}
}

// TestValidate: arguments that can never be right are refused by kind.
func TestValidate(t *testing.T) {
	for name, c := range map[string]struct{ err, want error }{
		"key":      {admin.ValidateKey(make([]byte, 4097)), ledger.ErrTooLarge},
		"name":     {admin.ValidatePageName(""), ledger.ErrInvalid},
		"long":     {admin.ValidateLedgerName(strings.Repeat("l", 151)), ledger.ErrTooLarge},
		"message":  {admin.ValidateMessage("\xff"), ledger.ErrInvalid},
		"tag":      {admin.ValidateTag("HEAD"), ledger.ErrInvalid},
		"revision": {admin.ValidateRevision("x~y"), ledger.ErrInvalid},
		"good key": {admin.ValidateKey(nil), nil},
	} {
		if !errors.Is(c.err, c.want) || c.want == nil && c.err != nil {
			t.Errorf("%s: %v, not %v", name, c.err, c.want)
		}
	}
}
