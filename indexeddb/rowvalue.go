package indexeddb

import (
	"fmt"
)

// The schema versions of Chromium's directories that this package can read, and the versions of
// their content.
const (
	MinSchemaVersion = 3
	MaxSchemaVersion = 5
	// MaxV8Version and MaxBlinkVersion are the newest serialized values that can be read.
	MaxV8Version    = 16
	MaxBlinkVersion = 21
)

// DataVersion packs the versions of V8 and Blink into the value of GlobalDataVersion.
func DataVersion(v8, blink int64) int64 { return v8<<32 | blink }

// DecodeRecord splits the value of a record into its version and the serialized script value, which
// shares memory with b. Errors: base.ErrCorrupt.
func DecodeRecord(b []byte) (version int64, value []byte, err error) {
	return DecodeVarInt(b)
}

// AppendRecord appends the value of a record.
func AppendRecord(dst []byte, version int64, value []byte) []byte {
	return append(AppendVarInt(dst, version), value...)
}

// DecodeIndexValue splits the value of an index row into the version of its record and the primary
// key. Errors: base.ErrCorrupt.
func DecodeIndexValue(b []byte) (version int64, primary Key, err error) {
	version, rest, err := DecodeVarInt(b)
	if err != nil {
		return 0, Key{}, err
	}
	primary, err = wholeKey(rest)
	return version, primary, err
}

// AppendIndexValue appends the value of an index row.
func AppendIndexValue(dst []byte, version int64, primary Key) []byte {
	return primary.Append(AppendVarInt(dst, version))
}

// AllBlobs is the number in a journal that means all blobs of a database. MinBlobNumber is the
// least number of a blob.
const (
	AllBlobs      = 1
	MinBlobNumber = 2
)

// JournalEntry names a blob to be deleted, or one that an uncommitted transaction wrote.
type JournalEntry struct {
	Database int64
	Number   int64 // of a blob, or AllBlobs
}

// DecodeJournal decodes a journal of blobs. Errors: base.ErrCorrupt.
func DecodeJournal(b []byte) (entries []JournalEntry, err error) {
	for len(b) > 0 {
		var e JournalEntry
		if e.Database, b, err = DecodeVarInt(b); err != nil {
			return nil, err
		}
		if e.Number, b, err = DecodeVarInt(b); err != nil {
			return nil, err
		}
		if e.Database == 0 || e.Number < AllBlobs {
			return nil, malformed("journal", "database %d, number %d", e.Database, e.Number)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// AppendJournal appends a journal of blobs.
func AppendJournal(dst []byte, entries []JournalEntry) []byte {
	for _, e := range entries {
		dst = AppendVarInt(AppendVarInt(dst, e.Database), e.Number)
	}
	return dst
}

// ObjectType is the type of an external object, with the number that Chromium writes.
type ObjectType byte

// The types of external objects.
const (
	ObjectBlob   ObjectType = 0
	ObjectFile   ObjectType = 1
	ObjectHandle ObjectType = 2 // a file system handle
)

// windowsEpoch is 1970-01-01 in microseconds since 1601.
const windowsEpoch = 11644473600000000

// ExternalObject is an object that a record refers to but does not contain.
type ExternalObject struct {
	Type ObjectType
	// For a blob or file, Number identifies the content within the database. MediaType is the MIME
	// type, and Size the length in bytes.
	Number    int64
	MediaType string
	Size      int64
	// Name and Modified belong to a file. Modified is in microseconds since 1601.
	Name     string
	Modified int64
	// Token is the opaque token of a handle.
	Token []byte
}

// ModifiedUnixMicro returns Modified in microseconds since 1970.
func (o ExternalObject) ModifiedUnixMicro() int64 { return o.Modified - windowsEpoch }

// ModifiedAt converts microseconds since 1970 to a value for Modified.
func ModifiedAt(unixMicro int64) int64 { return unixMicro + windowsEpoch }

// WrapperMediaType is the media type of an external object that contains the serialized value.
const WrapperMediaType = "application/vnd.blink-idb-value-wrapper"

// DecodeExternalObjects decodes the external objects of a record, in a directory of the given
// schema version. Schema 3 lacks size and time of files; they become -1 and 0. Errors:
// base.ErrCorrupt.
func DecodeExternalObjects(b []byte, schema int64) (objects []ExternalObject, err error) {
	for len(b) > 0 {
		o := ExternalObject{Type: ObjectType(b[0])}
		switch b = b[1:]; {
		case o.Type == ObjectHandle:
			var ok bool
			if o.Token, b, ok = binaryWithLength(b); !ok {
				err = malformed("external objects", "a token that is cut")
			}
			o.Token = append([]byte{}, o.Token...)
		case o.Type > ObjectHandle:
			err = malformed("external objects", "type %d", o.Type)
		default:
			b, err = o.decode(b, schema)
		}
		if err != nil {
			return nil, fmt.Errorf("external object %d: %w", len(objects), err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

func (o *ExternalObject) decode(b []byte, schema int64) (rest []byte, err error) {
	if o.Number, b, err = DecodeVarInt(b); err != nil {
		return nil, err
	}
	if o.Number < MinBlobNumber {
		return nil, malformed("external objects", "number %d", o.Number)
	}
	if o.MediaType, b, err = decodeStringWithLength(b); err != nil {
		return nil, err
	}
	if o.Size = -1; schema > 3 || o.Type == ObjectBlob {
		if o.Size, b, err = DecodeVarInt(b); err != nil {
			return nil, err
		}
	}
	if o.Type == ObjectFile {
		if o.Name, b, err = decodeStringWithLength(b); err == nil && schema > 3 {
			o.Modified, b, err = DecodeVarInt(b)
		}
	}
	return b, err
}

// AppendExternalObjects appends the external objects of a record in the form of schema 5.
func AppendExternalObjects(dst []byte, objects []ExternalObject) []byte {
	for _, o := range objects {
		dst = append(dst, byte(o.Type))
		if o.Type == ObjectHandle {
			dst = append(AppendVarInt(dst, int64(len(o.Token))), o.Token...)
			continue
		}
		dst = appendStringWithLength(AppendVarInt(dst, o.Number), o.MediaType)
		dst = AppendVarInt(dst, o.Size)
		if o.Type == ObjectFile {
			dst = AppendVarInt(appendStringWithLength(dst, o.Name), o.Modified)
		}
	}
	return dst
}
