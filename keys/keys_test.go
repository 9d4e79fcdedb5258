package keys_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// device returns a repository in memory with a cloud of its own, which nothing syncs by itself.
func device(t *testing.T, key string) *ledger.Repository {
	t.Helper()
	b := mem.New(mem.Options{})
	open := func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return b, nil }
	r, err := ledger.Open(t.Context(), "", &ledger.Options{
		InMemory: true, Sync: ledger.SyncOptions{Manual: true}, Buckets: map[string]bucket.Opener{"mem": open},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := r.SetCloud(t.Context(), &ledger.Cloud{URL: "mem:x", KeyFile: key}); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestChangeKeysRequests counts what a change of the keyring asks of the bucket, and names slots in
// all ways.
func TestChangeKeysRequests(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := keys.CreateFile(key, nil); err != nil {
		t.Fatal(err)
	}
	r := device(t, key)
	if _, err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var info keys.Keyring
	change := func(c keys.ChangeOptions) {
		t.Helper()
		before := admin.Metrics(r)
		var err error
		if info, err = keys.Change(t.Context(), r, &c); err != nil {
			t.Fatal(err)
		}
		after := admin.Metrics(r)
		if n := after.A + after.B - before.A - before.B; n != 3 {
			t.Errorf("%d requests", n)
		}
	}
	change(keys.ChangeOptions{NewDataKey: true})
	for _, label := range []string{"phone", "twice", "twice"} {
		words, err := keys.NewRecoveryWords()
		if err != nil {
			t.Fatal(err)
		}
		change(keys.ChangeOptions{AddWords: words, Label: label})
	}
	for text, want := range map[string]error{"twice": ledger.ErrInvalid, "nobody": ledger.ErrNotFound, "": ledger.ErrNotFound, info.Slots[0].ID: ledger.ErrInvalid} {
		if _, err := keys.Change(t.Context(), r, &keys.ChangeOptions{Without: []string{text}}); !errors.Is(err, want) {
			t.Errorf("without %q: %v", text, err)
		}
	}
	change(keys.ChangeOptions{NewDataKey: true, Without: []string{"phone", info.Slots[2].ID[:8]}})
	if len(info.Slots) != 2 || info.Slots[1].Label != "twice" || info.DataKeys != 3 {
		t.Errorf("%+v", info)
	}
}
