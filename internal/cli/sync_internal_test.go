package cli

import (
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
)

// TestSyncTotal sums up both directions of all pages, also of one that is closed meanwhile.
func TestSyncTotal(t *testing.T) {
	page := func(name string, up, down cloudsync.Progress) ledger.SyncState {
		return ledger.SyncState{Ledger: name, Up: up, Down: down, Upload: ledger.SyncInProgress}
	}
	total := syncTotal{}
	total.add([]ledger.SyncState{page("a", cloudsync.Progress{Values: 1, TotalValues: 2, Bytes: 10, TotalBytes: 20}, cloudsync.Progress{})})
	got := total.add([]ledger.SyncState{page("b", cloudsync.Progress{TotalValues: 3, TotalBytes: 5}, cloudsync.Progress{Values: 4, TotalValues: 4, Bytes: 6, TotalBytes: 7})})
	if want := (counters{files: 5, totalFiles: 9, bytes: 16, totalBytes: 32, what: "b"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
