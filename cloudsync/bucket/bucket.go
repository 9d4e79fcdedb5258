package bucket

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ledgerd/ledger/internal/base"
)

const (
	// MaxNameBytes is the greatest length of the name of an object.
	MaxNameBytes = 1024
	// MaxList is the greatest number of names that one List returns.
	MaxList = 1000
)

// Bucket is a flat namespace of immutable objects. Its methods are safe for concurrent use, block
// for the store, and return soon after ctx has ended. Their errors are *Error; Ambiguous tells
// whether a failed write may have landed. No method retries; see Retry.
type Bucket interface {
	// PutIfAbsent stores the size bytes of content under name, durably when it returns nil. If the
	// name is taken, it stores nothing and returns ErrExists. Of any number of concurrent calls for
	// one name at most one returns nil. content is read once, only by this call, and not after it
	// has returned. It must give exactly size bytes; otherwise nothing is stored and the error
	// matches base.ErrInvalid, or that of content. A reader never sees a part of an object. See
	// WithCreated for the creation time. Errors: ErrExists, base.ErrInvalid, base.ErrNetwork,
	// base.ErrNoSpace, fs.ErrPermission, base.ErrClosed.
	PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error
	// Get opens n bytes of the object from off on, or fewer if it ends earlier; a negative n means
	// all up to the end. n = 0 asks only for Size and Created. off must lie within the object or be
	// 0, else ErrRange. The caller closes Body, and ctx must live until then. Errors:
	// base.ErrNotFound, ErrRange, base.ErrInvalid, base.ErrNetwork, fs.ErrPermission,
	// base.ErrClosed.
	Get(ctx context.Context, name string, off, n int64) (Object, error)
	// List returns the objects whose names begin with prefix and are greater than after, in byte
	// order, at most limit of them (1 to MaxList). It returns fewer only if there are no more. It
	// contains all objects put before the call, and none deleted before it. It leaves out names in
	// the store that are not legal. prefix and after consist of the bytes of names, and either may
	// be empty. Errors: base.ErrInvalid, base.ErrNetwork, fs.ErrPermission, base.ErrClosed.
	List(ctx context.Context, after, prefix string, limit int) ([]Info, error)
	// Delete removes the object, and returns nil if there is none. Errors: base.ErrInvalid,
	// base.ErrNetwork, fs.ErrPermission, base.ErrClosed.
	Delete(ctx context.Context, name string) error
	// String returns the URL of the bucket, without secrets.
	String() string
}

// Object is an opened object.
type Object struct {
	// Body gives the bytes of the range, and an error if it ends before the last of them. It is
	// never nil, and the caller closes it.
	Body io.ReadCloser
	// Size is the length of the whole object in bytes.
	Size int64
	// Created is when the object was stored, by the bucket's clock, perhaps cut to whole seconds.
	Created time.Time
	// ServerTime is when the bucket answered, by its own clock, perhaps cut to whole seconds; zero
	// if the bucket does not say.
	ServerTime time.Time
}

// Info describes an object in a list.
type Info struct {
	// Name is a legal name (see CheckName).
	Name string
	// Size is the length in bytes.
	Size int64
	// Created is as in Object.
	Created time.Time
}

// CheckName reports whether name is a legal name of an object: 1 to MaxNameBytes bytes of a-z, 0-9,
// '/', '.', '_' and '-', without an empty segment, "." and "..". The error matches base.ErrInvalid.
func CheckName(name string) error {
	if name == "" {
		return fmt.Errorf("check object name: %w: it is empty", base.ErrInvalid)
	}
	if err := CheckPrefix(name); err != nil {
		return err
	}
	for seg := range strings.SplitSeq(name, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return fmt.Errorf("check object name %q: %w: segment %q", name, base.ErrInvalid, seg)
		}
	}
	return nil
}

// CheckPrefix reports whether prefix is a legal argument of List: at most MaxNameBytes of the bytes
// of names, in any order. The error matches base.ErrInvalid.
func CheckPrefix(prefix string) error {
	if len(prefix) > MaxNameBytes {
		return fmt.Errorf("check object name: %w: %d bytes, limit %d", base.ErrInvalid, len(prefix), MaxNameBytes)
	}
	for i := range len(prefix) {
		if c := prefix[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '/' || c == '.' || c == '_' || c == '-') {
			return fmt.Errorf("check object name %q: %w: byte %#02x at %d", prefix, base.ErrInvalid, c, i)
		}
	}
	return nil
}

// CheckPut checks the arguments of PutIfAbsent before any request. The error is an *Error.
func CheckPut(ctx context.Context, name string, size int64) error {
	err := CheckName(name)
	if err == nil && size < 0 {
		err = fmt.Errorf("%w: size %d", base.ErrInvalid, size)
	}
	return checked(ctx, OpPut, name, err)
}

// CheckGet checks the arguments of Get before any request. The error is an *Error.
func CheckGet(ctx context.Context, name string, off int64) error {
	err := CheckName(name)
	if err == nil && off < 0 {
		err = fmt.Errorf("%w: offset %d", base.ErrInvalid, off)
	}
	return checked(ctx, OpGet, name, err)
}

// CheckList checks the arguments of List before any request. The error is an *Error.
func CheckList(ctx context.Context, after, prefix string, limit int) error {
	err := CheckPrefix(after)
	if err == nil {
		err = CheckPrefix(prefix)
	}
	if err == nil && (limit < 1 || limit > MaxList) {
		err = fmt.Errorf("%w: limit %d, from 1 to %d", base.ErrInvalid, limit, MaxList)
	}
	return checked(ctx, OpList, prefix, err)
}

// CheckDelete checks the arguments of Delete before any request. The error is an *Error.
func CheckDelete(ctx context.Context, name string) error {
	return checked(ctx, OpDelete, name, CheckName(name))
}

// checked turns a refused argument, or an ended context, into an *Error: nothing was sent.
func checked(ctx context.Context, op Op, name string, err error) error {
	if err != nil {
		return &Error{Op: op, Name: name, Class: ClassInvalid, Err: err}
	}
	if err := context.Cause(ctx); err != nil {
		return &Error{Op: op, Name: name, Class: ClassCanceled, Err: err}
	}
	return nil
}

// CheckRange returns the number of bytes that a Get of n from off on returns of an object of size
// bytes, or an *Error that matches ErrRange.
func CheckRange(name string, off, n, size int64) (int64, error) {
	if off > 0 && off >= size {
		return 0, &Error{Op: OpGet, Name: name, Class: ClassInvalid, Err: fmt.Errorf("%w: offset %d of %d bytes", ErrRange, off, size)}
	}
	if rest := size - off; n < 0 || n > rest {
		n = rest
	}
	return n, nil
}

type createdKey struct{}

// WithCreated returns a context under which a PutIfAbsent that returns nil sets *created to the
// creation time of the object, by the bucket's clock and perhaps cut to seconds; zero if the store
// does not say. It costs no request. One context serves one call.
func WithCreated(ctx context.Context, created *time.Time) context.Context {
	*created = time.Time{}
	return context.WithValue(ctx, createdKey{}, created)
}

// ReportCreated is for implementers: it passes t to the caller that used WithCreated, if any. It is
// called before a PutIfAbsent returns nil.
func ReportCreated(ctx context.Context, t time.Time) {
	if p, ok := ctx.Value(createdKey{}).(*time.Time); ok {
		*p = t
	}
}

// ReadExact returns a reader of content that gives exactly size bytes, for implementers of
// PutIfAbsent. Its error matches base.ErrInvalid if content is shorter or longer. It reads one byte
// beyond size to find out.
func ReadExact(content io.Reader, size int64) io.Reader { return &exactReader{r: content, left: size} }

type exactReader struct {
	r    io.Reader
	left int64
	err  error
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.err != nil || len(p) == 0 {
		return 0, e.err
	}
	if e.left == 0 {
		e.err = e.atEnd()
		return 0, e.err
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	switch {
	case err == io.EOF && e.left > 0:
		e.err = fmt.Errorf("%w: content is %d bytes shorter than said", base.ErrInvalid, e.left)
	case err != nil && err != io.EOF:
		e.err = fmt.Errorf("read content: %w", err)
	}
	return n, e.err
}

func (e *exactReader) atEnd() error {
	var one [1]byte
	switch n, err := io.ReadFull(e.r, one[:]); {
	case n > 0:
		return fmt.Errorf("%w: content is longer than said", base.ErrInvalid)
	case err == io.EOF:
		return io.EOF
	default:
		return fmt.Errorf("read content: %w", err)
	}
}
