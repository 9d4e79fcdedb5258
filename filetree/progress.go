package filetree

import "fmt"

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

// Progress is the progress of a long call.
type Progress struct {
	// Files is the number of files, links and empty directories processed, or of lines.
	Files int64
	// Bytes is the number of bytes read or written.
	Bytes int64
	// Path is the present path.
	Path string
}

// reporter tells the warnings and the progress of a long call, and counts them.
type reporter struct {
	onWarning  func(Warning)  // nil ignores them
	onProgress func(Progress) // nil ignores it
	warnings   int64
	now        Progress
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
	r.now.Files++
	r.now.Path = path
	r.report()
}

func (r *reporter) report() {
	if r.onProgress != nil {
		r.onProgress(r.now)
	}
}
