package filetree

import (
	"fmt"

	"github.com/ledgerd/ledger"
)

// Warning reports one path that was left out, and why. Everything else is done.
type Warning struct {
	// Path is relative to the tree, slash separated.
	Path string
	Err  error
}

// Error returns the path, quoted when it has to be, and the reason.
func (w Warning) Error() string { return fmt.Sprintf("%q: %v", w.Path, w.Err) }

// Unwrap returns the reason.
func (w Warning) Unwrap() error { return w.Err }

// reporter tells the warnings and the progress of a long call, and counts them.
type reporter struct {
	onWarning  func(Warning)         // nil ignores them
	onProgress func(ledger.Progress) // nil ignores it
	warnings   int64
	now        ledger.Progress
}

func (r *reporter) warn(path string, err error) {
	r.warnings++
	if r.onWarning != nil {
		r.onWarning(Warning{Path: path, Err: err})
	}
}

// passed reports that bytes have been read or written.
func (r *reporter) passed(n int64) {
	r.now.Bytes += n
	r.report()
}

// done reports that a file, or a line, has been processed.
func (r *reporter) done(path string) {
	r.now.Done++
	r.now.Now = path
	r.report()
}

func (r *reporter) report() {
	if r.onProgress != nil {
		r.onProgress(r.now)
	}
}
