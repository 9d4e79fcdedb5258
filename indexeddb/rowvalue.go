package indexeddb

import (
	"fmt"
)

// Schema versions of Chromium's directories that are understood, and the versions of what they
// hold.
const (
	MinSchemaVersion = 3
	MaxSchemaVersion = 5
	// MaxV8Version and MaxBlinkVersion are the versions of serialized values that are understood.
	MaxV8Version    = 16
	MaxBlinkVersion = 21
)

// DataVersion packs the versions of V8 and Blink as the value of GlobalDataVersion.
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
// first of a blob.
const (
	AllBlobs      = 1
	MinBlobNumber = 2
)

// JournalEntry names a blob that a transaction wrote and did not commit, or that is to be deleted.
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

// ObjectType is what an external object is, with the number that Chromium writes.
type ObjectType byte

// The types of external objects.
const (
	ObjectBlob   ObjectType = 0
	ObjectFile   ObjectType = 1
	ObjectHandle ObjectType = 2 // a handle of the file system
)

// windowsEpoch is 1970 in microseconds since 1601.
const windowsEpoch = 11644473600000000

// ExternalObject is what a record refers to and does not hold.
type ExternalObject struct {
	Type ObjectType
	// Number names the content of a blob or file within its database, MediaType is its MIME type,
	// and Size its length in bytes.
	Number    int64
	MediaType string
	Size      int64
	// Name and Modified, in microseconds since 1601, are those of a file.
	Name     string
	Modified int64
	// Token is what a handle has, opaque.
	Token []byte
}

// ModifiedUnixMicro returns Modified in microseconds since 1970.
func (o ExternalObject) ModifiedUnixMicro() int64 { return o.Modified - windowsEpoch }

// ModifiedAt returns what Modified is at a time in microseconds since 1970.
func ModifiedAt(unixMicro int64) int64 { return unixMicro + windowsEpoch }

// WrapperMediaType is the media type of an external object that holds the serialized value itself.
const WrapperMediaType = "application/vnd.blink-idb-value-wrapper"

// DecodeExternalObjects decodes the external objects of a record, as directories of the schema
// given hold them: those of schema 3 say neither size nor time of files, which are -1 and 0 then.
// Errors: base.ErrCorrupt.
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

// AppendExternalObjects appends the external objects of a record as schema 5 has them.
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
