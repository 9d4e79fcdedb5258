package pagelog

import (
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// tooOld returns an error for an object sealed with an older data key than its predecessor. Later
// objects are sealed with the same key or a later one, since their writer has read all before. So a
// device that was shut out cannot continue a log in which a member has written since.
func (l *Log) tooOld(key uint32) error {
	if key >= l.key {
		return nil
	}
	return &base.CorruptError{Where: "log", Err: fmt.Errorf("it is sealed with data key %d, and what is before it with %d", key, l.key)}
}
