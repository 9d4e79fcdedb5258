package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/internal/base"
)

// The following is shared by buckets that use a client library, for implementers.

// Prefix precedes all names of a bucket in its store: it is empty, or a legal name and a slash.
type Prefix string

// ParsePrefix reads the prefix of a URL, with or without a slash at its end. Errors:
// base.ErrInvalid.
func ParsePrefix(path string) (Prefix, error) {
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return "", nil
	}
	if err := CheckName(path); err != nil {
		return "", err
	}
	return Prefix(path + "/"), nil
}

// Check returns err, the result of checking the arguments of a call. If that is nil, it refuses a
// name that is too long with the prefix, and all calls after the Bucket was closed. The error is an
// *Error.
func (p Prefix) Check(op Op, name string, closed bool, err error) error {
	if err != nil {
		return err
	}
	if n := len(p) + len(name); n > MaxNameBytes && op != OpList {
		return &Error{Op: op, Name: name, Class: ClassInvalid, Err: fmt.Errorf("%w: name has %d bytes with the prefix, limit %d", base.ErrInvalid, n, MaxNameBytes)}
	}
	if closed {
		return &Error{Op: op, Name: name, Class: ClassOther, Err: base.ErrClosed}
	}
	return nil
}

// Key returns the store's key for a name.
func (p Prefix) Key(name string) string { return string(p) + name }

// Listing filters a store's list for one List. It is for one goroutine.
type Listing struct {
	// Infos are the objects so far.
	Infos []Info

	of            Prefix
	after, prefix string
}

// Listing begins a Listing for a List with these arguments.
func (p Prefix) Listing(after, prefix string) *Listing {
	return &Listing{of: p, after: after, prefix: prefix}
}

// Add adds the next object by its key in the store, and reports whether it belongs to the List:
// others may have put the rest there. The error is an *Error: the store does not list by name.
func (l *Listing) Add(key string, size int64, created time.Time) (ours bool, err error) {
	name, ok := strings.CutPrefix(key, string(l.of))
	if !ok || CheckName(name) != nil || name <= l.after || !strings.HasPrefix(name, l.prefix) {
		return false, nil
	}
	if n := len(l.Infos); n > 0 && l.Infos[n-1].Name >= name {
		return false, &Error{Op: OpList, Name: l.prefix, Class: ClassCorrupt, Err: fmt.Errorf("%q is listed after %q", name, l.Infos[n-1].Name)}
	}
	l.Infos = append(l.Infos, Info{Name: name, Size: size, Created: created})
	return true, nil
}

// Upload is the content of a put during the upload. It records its own error, separately from that
// of the upload. It is for one goroutine, except Whole.
type Upload struct {
	ctx   context.Context // that of the put
	r     io.Reader
	err   error
	whole atomic.Bool
}

// NewUpload returns the content of a put under ctx, of exactly size bytes: see ReadExact.
func NewUpload(ctx context.Context, content io.Reader, size int64) *Upload {
	return &Upload{ctx: ctx, r: ReadExact(content, size)}
}

// Read implements io.Reader. It fails when ctx has ended.
func (c *Upload) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		c.err = err
		return 0, err
	}
	n, err := c.r.Read(p)
	if err == io.EOF {
		c.whole.Store(true)
	} else if err != nil {
		c.err = err
	}
	return n, err
}

// Err returns the error that ended the content, nil for io.EOF.
func (c *Upload) Err() error { return c.err }

// Whole reports whether all content was read. It is safe for concurrent use.
func (c *Upload) Whole() bool { return c.whole.Load() }

// NewBody returns the body of a Get: the first n bytes of r, and an error if r ends early. mapped
// maps errors of r to those of the Bucket. Close closes r.
func NewBody(r io.ReadCloser, n int64, mapped func(error) error) io.ReadCloser {
	return &body{r, n, mapped}
}

type body struct {
	r      io.ReadCloser
	left   int64
	mapped func(error) error
}

// Read implements io.Reader.
func (y *body) Read(p []byte) (int, error) {
	if y.left == 0 {
		return 0, io.EOF
	}
	n, err := y.r.Read(p[:min(int64(len(p)), y.left)])
	y.left -= int64(n)
	switch {
	case err == nil, n > 0 && (err == io.EOF || y.left == 0):
		return n, nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, y.mapped(err)
}

// Close implements io.Closer.
func (y *body) Close() error { return y.r.Close() }

// NewClientError is NewError for an error of a client library about a request that may have been
// sent. An error that is no trouble of the network is an answer that the library cannot use:
// ClassCorrupt.
func NewClientError(ctx context.Context, op Op, name string, err error) error {
	mapped := NewError(ctx, op, name, true, err)
	if e, ok := errors.AsType[*Error](mapped); ok && e.Class == ClassOther {
		e.Class = ClassCorrupt
	}
	return mapped
}
