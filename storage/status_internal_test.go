package storage

import "testing"

// TestCommitThatComesAgain follows a commit that is here through another record of it: received
// from the bucket it is synced, made here it stays as it is.
func TestCommitThatComesAgain(t *testing.T) {
	for _, unsynced := range []bool{false, true} {
		for origin, want := range map[byte]bool{originLocal: unsynced, originBucket: false, originTreeless: false, originAhead: false} {
			is := commitStatus{here: true, unsynced: unsynced}
			if got := is.after(&op{kind: recCommit, origin: origin}); got != (commitStatus{here: true, unsynced: want}) {
				t.Errorf("%+v with origin %d: %+v", is, origin, got)
			}
		}
	}
}
