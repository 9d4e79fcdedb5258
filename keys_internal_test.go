package ledger

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/mem"
)

// TestChangeKeysRequests counts what a change of the keyring asks of the bucket, and names slots in
// all ways.
func TestChangeKeysRequests(t *testing.T) {
	w := &historyWorld{t: t, bucket: mem.New(mem.Options{}), key: filepath.Join(t.TempDir(), "key")}
	if err := CreateKeyFile(w.key); err != nil {
		t.Fatal(err)
	}
	r := w.device(false)
	if _, err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var info KeyringInfo
	change := func(c KeyChange) {
		t.Helper()
		before := r.cloud.Metrics()
		var err error
		if info, err = r.ChangeKeys(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		after := r.cloud.Metrics()
		if n := after.A + after.B - before.A - before.B; n != 3 {
			t.Errorf("%d requests", n)
		}
	}
	change(KeyChange{NewDataKey: true})
	for _, label := range []string{"phone", "twice", "twice"} {
		words, err := NewRecoveryWords()
		if err != nil {
			t.Fatal(err)
		}
		change(KeyChange{AddWords: words, Label: label})
	}
	for text, want := range map[string]error{"twice": ErrInvalid, "nobody": ErrNotFound, "": ErrNotFound, info.Slots[0].ID: ErrInvalid} {
		if _, err := r.ChangeKeys(t.Context(), KeyChange{Without: []string{text}}); !errors.Is(err, want) {
			t.Errorf("without %q: %v", text, err)
		}
	}
	change(KeyChange{NewDataKey: true, Without: []string{"phone", info.Slots[2].ID[:8]}})
	if len(info.Slots) != 2 || info.Slots[1].Label != "twice" || info.DataKeys != 3 {
		t.Errorf("%+v", info)
	}
}
