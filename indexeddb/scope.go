package indexeddb

import (
	"bytes"
	"encoding/binary"
	"math"
)

// ScopeKind is the kind of a row in the scopes log.
type ScopeKind byte

// The kinds of rows in the scopes log; each row key begins with one of these bytes.
const (
	ScopeVersion  ScopeKind = 0 // the version of the log
	ScopeMetadata ScopeKind = 1 // the locks of a transaction; without locks, it has committed
	ScopeTask     ScopeKind = 2 // a task that undoes a transaction, or cleans up after it
)

// ScopesVersion is the supported version of the scopes log.
const ScopesVersion = 1

// Scope is the key of a row in the scopes log, Row.Scope. A transaction too large for one batch
// writes its rows early, and before them the tasks that undo them.
type Scope struct {
	Kind ScopeKind
	// ID is the number of the transaction.
	ID int64
	// Cleanup marks a task that runs after a commit; other tasks undo.
	Cleanup bool
	// Sequence orders tasks: among those that undo, the newest has the least number.
	Sequence int64
}

// DecodeScope decodes Row.Scope. Errors: base.ErrCorrupt.
func DecodeScope(b []byte) (s Scope, err error) {
	if len(b) == 0 {
		return s, malformed("scope", "it has no type")
	}
	s.Kind, b = ScopeKind(b[0]), b[1:]
	switch s.Kind {
	case ScopeVersion:
	case ScopeMetadata:
		s.ID, b, err = DecodeVarInt(b)
	case ScopeTask:
		if s.ID, b, err = DecodeVarInt(b); err != nil {
			return s, err
		}
		if len(b) != 9 || b[0] > 1 || b[1] > math.MaxInt8 {
			return s, malformed("scope", "a task without kind or sequence")
		}
		s.Cleanup, s.Sequence, b = b[0] == 1, int64(binary.BigEndian.Uint64(b[1:])), nil
	default:
		err = malformed("scope", "type %d", s.Kind)
	}
	if err == nil && len(b) > 0 {
		err = malformed("scope", "%d bytes behind it", len(b))
	}
	return s, err
}

// Append appends the scope in the form of Row.Scope.
func (s Scope) Append(dst []byte) []byte {
	dst = append(dst, byte(s.Kind))
	if s.Kind == ScopeVersion {
		return dst
	}
	dst = AppendVarInt(dst, s.ID)
	if s.Kind == ScopeTask {
		dst = binary.BigEndian.AppendUint64(AppendBool(dst, s.Cleanup), uint64(s.Sequence))
	}
	return dst
}

// ScopeOperation is one step of a task.
type ScopeOperation struct {
	// Put stores Value under Key. Without Put, Key is deleted, or all keys from Key to End, End
	// excluded, when End is set.
	Put             bool
	Key, Value, End []byte
}

// DecodeScopeTask decodes the value of a task. Its slices share memory with b. Errors:
// base.ErrCorrupt.
func DecodeScopeTask(b []byte, cleanup bool) (op ScopeOperation, err error) {
	number, body, err := onlyMessage(b)
	if err != nil {
		return op, err
	}
	first, second, err := twoFields(body)
	op.Key = first
	switch {
	case err != nil:
	case first == nil:
		err = malformed("scope task", "it has no key")
	case !cleanup && number == 1:
		op.Put, op.Value = true, second
	case !cleanup && number == 2 && second == nil:
	case !cleanup && number == 3 || cleanup && (number == 1 || number == 2):
		if op.End = second; second == nil {
			err = malformed("scope task", "a range without end")
		}
	default:
		err = malformed("scope task", "operation %d", number)
	}
	return op, err
}

// ScopeCommitted reports whether a transaction has committed. b is the value of its ScopeMetadata
// row: without locks, it has committed. Errors: base.ErrCorrupt.
func ScopeCommitted(b []byte) (bool, error) {
	committed := true
	for len(b) > 0 {
		number, _, rest, err := protoField(b)
		if err != nil {
			return false, err
		}
		if number == 1 {
			committed = false
		}
		b = rest
	}
	return committed, nil
}

// DecodeScopesVersion decodes the value of the ScopeVersion row. Errors: base.ErrCorrupt.
func DecodeScopesVersion(b []byte) (int64, error) {
	if len(b) == 0 || b[0] != 1<<3 {
		return 0, malformed("scopes", "a version that is none")
	}
	return wholeVarInt(b[1:])
}

// AppendScopesVersion appends the value of the ScopeVersion row.
func AppendScopesVersion(dst []byte, version int64) []byte {
	return AppendVarInt(append(dst, 1<<3), version)
}

// onlyMessage returns number and content of the only field of a protocol buffer, a message.
func onlyMessage(b []byte) (number int64, body []byte, err error) {
	number, body, rest, err := protoField(b)
	if err == nil && (len(rest) > 0 || body == nil) {
		err = malformed("scope task", "it is not one operation")
	}
	return number, body, err
}

// twoFields returns fields 1 and 2 of a message, both bytes, or nil for an absent field.
func twoFields(b []byte) (first, second []byte, err error) {
	for len(b) > 0 {
		number, body, rest, err := protoField(b)
		switch {
		case err != nil:
			return nil, nil, err
		case body == nil || number != 1 && number != 2:
			return nil, nil, malformed("scope task", "field %d", number)
		case number == 1:
			first = body
		default:
			second = body
		}
		b = rest
	}
	return first, second, nil
}

// protoField cuts the first field off a protocol buffer. The body of a number is nil.
func protoField(b []byte) (number int64, body, rest []byte, err error) {
	tag, b, err := DecodeVarInt(b)
	if err != nil {
		return 0, nil, nil, err
	}
	switch tag & 7 {
	case 0:
		_, rest, err = DecodeVarInt(b)
		return tag >> 3, nil, rest, err
	case 2:
		body, rest, ok := binaryWithLength(b)
		if ok {
			return tag >> 3, bytes.Clone(body[:len(body):len(body)]), rest, nil
		}
	}
	return 0, nil, nil, malformed("scopes", "a field that is cut or of unknown type")
}
