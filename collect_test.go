package ledger_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

func TestCollectGivesHistoryUp(t *testing.T) {
	ctx := t.Context()
	r := open(t, t.TempDir(), nil)
	p := page(t, r, "notes", "inbox")
	for i := range 20 {
		update(t, p, func(tx *ledger.Tx) error {
			return errors.Join(tx.Put(ctx, []byte("long"), pseudo(uint64(i), 300_000)), tx.Put(ctx, []byte("short"), []byte{byte(i)}))
		})
	}
	third, err := p.Resolve(ctx, "HEAD~3")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Tag(ctx, "release", third); err != nil {
		t.Fatal(err)
	}
	old, err := p.Resolve(ctx, "HEAD~5")
	if err != nil {
		t.Fatal(err)
	}
	snap, err := p.At(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	last := admin.CollectOptions{Retention: &admin.Retention{Commits: 1}}
	dry := last
	dry.DryRun = true
	if got, err := admin.Collect(ctx, r, &dry); err != nil || got[0].Pruned != 18 || got[0].Pieces != 0 {
		t.Fatalf("dry run: %+v, %v", got, err)
	}
	none := last
	none.Pages = []ledger.PageRef{}
	if got, err := admin.Collect(ctx, r, &none); err != nil || len(got) != 0 {
		t.Fatalf("no page: %+v, %v", got, err)
	}
	got, err := admin.Collect(ctx, r, &last)
	if err != nil {
		t.Fatal(err)
	}
	if c := got[0]; c.Pruned != 17 || c.Bytes < 16*300_000 || c.Pieces == 0 || c.Nodes == 0 {
		t.Errorf("collected %+v", c)
	}
	for name, check := range map[string]struct {
		id   ledger.CommitID
		want int
	}{"snapshot": {old, 14}, "tag": {third, 16}} {
		s, err := p.At(ctx, check.id)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b, err := s.Get(ctx, []byte("long")); err != nil || !bytes.Equal(b, pseudo(uint64(check.want), 300_000)) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err = admin.Collect(ctx, r, &last); err != nil || got[0].Pruned != 1 {
		t.Errorf("after the snapshot: %+v, %v", got, err)
	}
	if _, err := p.At(ctx, old); !errors.Is(err, ledger.ErrGone) && !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a commit that was given up: %v", err)
	}
	n := 0
	for _, err := range p.Log(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d commits in the history", n)
	}
	report, err := admin.Check(ctx, r, nil)
	if err != nil || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestCollectRefuses(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	for _, bad := range []admin.Retention{{Commits: -1}, {Age: -time.Second}} {
		if _, err := admin.Collect(t.Context(), r, &admin.CollectOptions{Retention: &bad}); !errors.Is(err, ledger.ErrInvalid) {
			t.Error(err)
		}
	}
}
