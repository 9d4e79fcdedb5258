package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ledgerd/ledger"
)

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want ledger.Kind
	}{
		{nil, ledger.KindNone},
		{errors.New("unknown"), ledger.KindInternal},
		{fmt.Errorf("read: %w", ledger.ErrNotFound), ledger.KindNotFound},
		{fmt.Errorf("sync: %w", ledger.ErrNoCloud), ledger.KindNotFound},
		{fmt.Errorf("sync: %w", ledger.ErrWrongKey), ledger.KindPermission},
		{fmt.Errorf("sync: %w", ledger.ErrDeleted), ledger.KindNotFound},
	} {
		if got := ledger.KindOf(c.err); got != c.want {
			t.Errorf("%v has kind %d, want %d", c.err, got, c.want)
		}
	}
}

// TestNoCloudIsNotNotFound: a commit that is not there and a cloud that is not set are told apart.
func TestNoCloudIsNotNotFound(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	id := put(t, p, "k", "v")
	err := p.WaitSynced(t.Context(), id)
	if wantErr(t, err, ledger.ErrNoCloud); errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("%v matches ErrNotFound", err)
	}
	err = p.WaitSynced(t.Context(), ledger.CommitID{1})
	if wantErr(t, err, ledger.ErrNotFound); errors.Is(err, ledger.ErrNoCloud) {
		t.Errorf("%v matches ErrNoCloud", err)
	}
}
