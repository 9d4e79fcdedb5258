package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledger/commit"
)

const (
	headRevision = "HEAD"
	// noRevision is what tools call the state before the first commit.
	noRevision = "none"
	// minPrefix is the least number of digits that may stand for a commit id.
	minPrefix = 4
)

// isIDPrefix reports whether name may stand for a commit by its id.
func isIDPrefix(name string) bool {
	if len(name) < minPrefix || len(name) > 2*commit.IDSize {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F') })
}

// ValidateRevision verifies that a revision has the form that Page.Resolve reads. Errors:
// ErrInvalid.
func ValidateRevision(revision string) error {
	_, _, err := parseRevision(revision)
	return err
}

// parseRevision splits a revision into its name and the number of steps back.
func parseRevision(revision string) (name string, steps uint64, err error) {
	name, rest, found := strings.Cut(revision, "~")
	if name == "" {
		return "", 0, fmt.Errorf("revision %q has no name; try HEAD, a tag, digits of a commit id, or a date: %w", revision, ErrInvalid)
	}
	if !found {
		return name, 0, nil
	}
	for _, s := range strings.Split(rest, "~") {
		n := uint64(1)
		if s != "" {
			if n, err = strconv.ParseUint(s, 10, 32); err != nil {
				return "", 0, fmt.Errorf("revision %q: %q behind '~' is no number: %w", revision, s, ErrInvalid)
			}
		}
		steps += n
	}
	return name, steps, nil
}

// parseRevisionTime reads a time, or a date, which means its last nanosecond in UTC.
func parseRevisionTime(s string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, true
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t.AddDate(0, 0, 1).Add(-1), true
	}
	return time.Time{}, false
}
