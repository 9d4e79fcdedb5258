package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/ledgerd/ledger/internal/base"
)

var (
	// ErrExists reports that the name is taken. It matches base.ErrConflict.
	ErrExists = fmt.Errorf("object exists: %w", base.ErrConflict)
	// ErrRange reports an offset that is not within the object. It matches base.ErrInvalid.
	ErrRange = fmt.Errorf("range is beyond the object: %w", base.ErrInvalid)
)

// Op is an operation of a bucket.
type Op uint8

// The operations.
const (
	OpPut Op = iota + 1
	OpGet
	OpList
	OpDelete
)

// String returns the verb for o.
func (o Op) String() string {
	if o < OpPut || o > OpDelete {
		return fmt.Sprintf("op %d", uint8(o))
	}
	return [...]string{"put", "get", "list", "delete"}[o-1]
}

// Class says what may be done about an error.
type Class uint8

// The classes.
const (
	// ClassOther is any unforeseen error. It is not retried.
	ClassOther Class = iota
	// ClassNotFound says that there is no such object; for a put or list, that there is no such
	// bucket.
	ClassNotFound
	// ClassExists says that the name is taken.
	ClassExists
	// ClassBusy says that there were too many requests at once, or that others work on the same
	// name. A put of a busy name reads the object there.
	ClassBusy
	// ClassRetryable says that the store or the way to it has trouble.
	ClassRetryable
	// ClassDenied says that the user must correct credentials or rights.
	ClassDenied
	// ClassQuota says that the user must free or buy space.
	ClassQuota
	// ClassInvalid says that the request can never succeed.
	ClassInvalid
	// ClassCorrupt says that the answer makes no sense, or that bytes changed in transit.
	ClassCorrupt
	// ClassCanceled says that the caller's context has ended.
	ClassCanceled
)

var classes = [...]struct {
	word     string
	sentinel error
}{
	ClassOther: {"other", nil}, ClassNotFound: {"not found", base.ErrNotFound}, ClassExists: {"exists", ErrExists}, ClassBusy: {"busy", base.ErrNetwork},
	ClassRetryable: {"retryable", base.ErrNetwork}, ClassDenied: {"denied", fs.ErrPermission},
	ClassQuota: {"quota", base.ErrNoSpace}, ClassInvalid: {"invalid", base.ErrInvalid}, ClassCorrupt: {"corrupt", base.ErrCorrupt}, ClassCanceled: {"canceled", nil},
}

// String returns the word for c.
func (c Class) String() string {
	if int(c) >= len(classes) {
		return fmt.Sprintf("class %d", uint8(c))
	}
	return classes[c].word
}

// NeedsUser reports whether only the user can help and waiting cannot.
func (c Class) NeedsUser() bool { return c == ClassDenied || c == ClassQuota }

// Error is the error of all calls of a Bucket. It matches the sentinel of its class:
// base.ErrNotFound, ErrExists, base.ErrNetwork (ClassBusy, ClassRetryable), fs.ErrPermission,
// base.ErrNoSpace, base.ErrInvalid, base.ErrCorrupt.
type Error struct {
	// Op is the operation.
	Op Op
	// Name is that of the object, the prefix for a list.
	Name string
	// Class says what may be done.
	Class Class
	// Status is that of HTTP, or 0.
	Status int
	// Ambiguous says that the write may have landed; see the function of this name.
	Ambiguous bool
	// Err is the cause, or nil.
	Err error
}

func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s object %s", e.Op, shortName(e.Name))
	if e.Err == nil || e.Class == ClassQuota || e.Class == ClassCorrupt { // else the cause says as much
		fmt.Fprintf(&s, ": %s", e.Class)
	}
	if e.Ambiguous {
		s.WriteString(", perhaps stored")
	}
	if e.Status != 0 {
		fmt.Fprintf(&s, " (status %d)", e.Status)
	}
	if e.Err != nil {
		s.WriteString(": " + e.Err.Error())
	}
	return s.String()
}

// shortName quotes the name of an object without its leading hashes, of page and ledger.
func shortName(name string) string {
	parts := strings.Split(name, "/")
	n := 0
	for n < len(parts)-1 && len(parts[n]) == hashDigits {
		n++
	}
	if n == 0 {
		return strconv.Quote(name)
	}
	return strconv.Quote(".../" + strings.Join(parts[n:], "/"))
}

// hashDigits is the length of the part of a name that stands for a page or ledger.
const hashDigits = 40

// Is reports whether target is the sentinel of the class, or one that it wraps.
func (e *Error) Is(target error) bool {
	return int(e.Class) < len(classes) && classes[e.Class].sentinel != nil && errors.Is(classes[e.Class].sentinel, target)
}

func (e *Error) Unwrap() error { return e.Err }

// PutNew puts an object under a name that was drawn at random. No other writer has that name: if an
// object of its length exists after a write that may have landed, it is this one.
func PutNew(ctx context.Context, b Bucket, name string, size int64, content io.Reader) error {
	err := b.PutIfAbsent(ctx, name, size, content)
	if errors.Is(err, ErrExists) && Ambiguous(err) {
		var there int64
		if there, err = SizeOf(ctx, b, name); err == nil && there != size {
			err = &base.CorruptError{Where: "object", Key: name, Want: fmt.Sprintf("the %d bytes uploaded", size), Got: fmt.Sprint(there)}
		}
	}
	if err != nil {
		return fmt.Errorf("upload %s: %w", name, err)
	}
	return nil
}

// SizeOf returns the length of an object. Errors: as Get.
func SizeOf(ctx context.Context, b Bucket, name string) (int64, error) {
	o, err := b.Get(ctx, name, 0, 0)
	if err != nil {
		return 0, err
	}
	return o.Size, o.Body.Close()
}

// Ambiguous reports whether the write that failed with err may have been carried out. The caller
// then checks, after an ErrExists, whether the object is its own. It is false for nil.
func Ambiguous(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Ambiguous
}

// ClassOf returns the class of err, ClassOther if it is no *Error.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ClassOther
}

// StatusClass is the table from statuses of HTTP to classes. ambiguous says that a write with this
// answer may have been carried out.
//
//	status                  get, list     put                     delete
//	304, 410                not found     retryable, ambiguous    not found
//	401, 403                denied        denied                  denied
//	402, 413, 507           quota         quota                   quota
//	404                     not found     not found (bucket)      not found
//	408, 499                retryable     retryable, ambiguous    retryable, ambiguous
//	409, 429                busy          busy, ambiguous         busy, ambiguous
//	412                     busy          exists                  busy
//	416, other 4xx          invalid       invalid                 invalid
//	501, 505                invalid       invalid                 invalid
//	other 5xx               retryable     retryable, ambiguous    retryable, ambiguous
//	any other               corrupt       corrupt, ambiguous      corrupt, ambiguous
//
// Stores that use 403 for too many requests or for a full quota give a reason, which their package
// examines first.
func StatusClass(op Op, status int) (class Class, ambiguous bool) {
	write := op == OpPut || op == OpDelete
	switch status { // numbers, so that a program without a cloud does not need net/http
	case 401, 403:
		return ClassDenied, false
	case 402, 507, 413: // requests are never large: a limit is the cause
		return ClassQuota, false
	case 404:
		return ClassNotFound, false
	case 304, 410: // 410 ends an upload session, of which the last answer may have been lost
		if op == OpPut {
			return ClassRetryable, true
		}
		return ClassNotFound, false
	case 408, 499:
		return ClassRetryable, write
	case 409, 429:
		return ClassBusy, write
	case 412:
		if op == OpPut {
			return ClassExists, false
		}
		return ClassBusy, false
	case 501, 505:
		return ClassInvalid, false
	}
	switch {
	case status >= 400 && status < 500:
		return ClassInvalid, false
	case status >= 500 && status < 600:
		return ClassRetryable, write
	}
	return ClassCorrupt, write
}

// NewStatusError returns the Error for a status by the table of StatusClass. err is the cause, or
// nil.
func NewStatusError(op Op, name string, status int, err error) *Error {
	class, ambiguous := StatusClass(op, status)
	return &Error{Op: op, Name: name, Class: class, Status: status, Ambiguous: ambiguous, Err: err}
}

// NewError returns the *Error for a cause that is not a status: the end of ctx, trouble of the
// network, a full disk. It returns err itself if that wraps an *Error already, and nil for nil.
// sent says that a write may have reached the store before err. For a get the result does not match
// io.EOF and io.ErrUnexpectedEOF: they are the end of an object, and here a connection has ended.
func NewError(ctx context.Context, op Op, name string, sent bool, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	sent = sent && (op == OpPut || op == OpDelete)
	class := causeClass(err)
	if op == OpGet && isEOF(err) {
		err = errors.New(err.Error())
	}
	e := &Error{Op: op, Name: name, Class: class, Ambiguous: sent, Err: err}
	if ctx.Err() != nil {
		e.Class = ClassCanceled
		if cause := context.Cause(ctx); !errors.Is(err, cause) {
			e.Err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	return e
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func causeClass(err error) Class {
	_, isNet := errors.AsType[interface { // net.Error, without the package
		error
		Timeout() bool
		Temporary() bool
	}](err)
	switch {
	case errors.Is(err, base.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return ClassNotFound
	case errors.Is(err, ErrExists), errors.Is(err, fs.ErrExist):
		return ClassExists
	case errors.Is(err, base.ErrInvalid):
		return ClassInvalid
	case errors.Is(err, base.ErrCorrupt):
		return ClassCorrupt
	case errors.Is(err, base.ErrNoSpace), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ClassQuota
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return ClassDenied
	case errors.Is(err, base.ErrNetwork), isNet, isEOF(err),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPIPE),
		errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE), errors.Is(err, context.DeadlineExceeded):
		return ClassRetryable
	}
	return ClassOther
}
