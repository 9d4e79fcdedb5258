package metabase

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ledgerd/ledger/internal/base"
)

// Type is the purpose of an object.
type Type uint32

// The types of objects.
const (
	Regular Type = iota
	Tombstone
	StorageGroup
	Lock
	Link
)

var typeNames = [...]string{"REGULAR", "TOMBSTONE", "STORAGE_GROUP", "LOCK", "LINK"}

// String returns the name that searches use.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return strconv.FormatUint(uint64(t), 10)
}

// Attribute is a key and a value that a user has set on an object.
type Attribute struct{ Key, Value string }

// AttributeExpiration is the attribute that holds the last epoch in which an object is available.
const AttributeExpiration = "__NEOFS__EXPIRATION_EPOCH"

// maxHeaderBytes is the size of the longest header that Put accepts.
const maxHeaderBytes = 16 << 10

// maxDecodedBytes is the size of the longest header that is decoded. It bounds the memory in use.
const maxDecodedBytes = 256 << 10

// Object is the decoded form of an object without its payload. The schema in protocol buffers:
//
//	Object    1 id {1 value} 2 signature 3 header 4 payload
//	Header    1 version {1 major 2 minor} 2 container {1 value} 3 owner {1 value} 4 creation epoch
//	          5 payload length 6 payload hash {1 type 2 sum} 7 type 8 homomorphic hash {1 type 2
//	            sum}
//	          9 session token 10 attribute {1 key 2 value}, repeated 11 split
//	Split     1 parent {1 value} 2 previous {1 value} 3 parent signature 4 parent header
//	          5 child {1 value}, repeated 6 split id 7 first {1 value}
//
// Byte slices share memory with the decoded bytes. NewObject makes new objects.
type Object struct {
	ID             ID
	Container      ID
	Owner          []byte // 25 bytes, or none
	Major, Minor   uint32
	CreationEpoch  uint64
	PayloadBytes   uint64
	PayloadHash    []byte // nil when there is none
	Type           Type
	Homomorphic    []byte
	Attributes     []Attribute
	Split          *Split // nil when there is none
	headerBytes    int
	hasPayloadHash bool
}

// Split describes how a part belongs to the object that was split.
type Split struct {
	// Parent is the object that was split. It is zero in parts stored before its id was known.
	Parent ID
	// Previous is the preceding part and First the first part. Each is zero when absent or not
	// known.
	Previous, First ID
	// SplitID identifies the parts of one object in the older scheme: 16 bytes or none.
	SplitID []byte
	// Children are the parts that a link object names in the older scheme.
	Children []ID
	// ParentHeader is the encoded header of Parent. Only the last part and the link object have it.
	ParentHeader    []byte
	parentSignature []byte
}

// SplitInfo names the parts of a virtual object.
type SplitInfo struct {
	// SplitID is 16 bytes or none. The ids are zero when not known.
	SplitID               []byte
	LastPart, Link, First ID
}

// DecodeObject decodes an object, with or without its payload. b may be any bytes; the result
// shares memory with b. Errors: base.ErrCorrupt; base.ErrTooLarge for a header of more than 256
// KiB.
func DecodeObject(b []byte) (*Object, error) {
	var id, header []byte
	err := fields(b, func(f *field) error {
		switch f.number {
		case 1:
			return f.message(&id)
		case 3:
			return f.message(&header)
		case 2, 4:
			return f.want(protowire.BytesType)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	o, err := decodeHeader(header)
	if err == nil {
		o.ID, err = innerID(id)
	}
	if err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return o, nil
}

func decodeHeader(b []byte) (*Object, error) {
	if len(b) > maxDecodedBytes {
		return nil, fmt.Errorf("header has %d bytes: %w", len(b), base.ErrTooLarge)
	}
	o := &Object{headerBytes: len(b)}
	var version, container, owner, hash, homomorphic, split []byte
	err := fields(b, func(f *field) error {
		switch f.number {
		case 1:
			return f.message(&version)
		case 2:
			return f.message(&container)
		case 3:
			return f.message(&owner)
		case 4:
			return f.uint64(&o.CreationEpoch)
		case 5:
			return f.uint64(&o.PayloadBytes)
		case 6:
			o.hasPayloadHash = true
			return f.message(&hash)
		case 7:
			return f.uint32((*uint32)(&o.Type))
		case 8:
			return f.message(&homomorphic)
		case 10:
			return o.addAttribute(f)
		case 11:
			if o.Split == nil {
				o.Split = &Split{}
			}
			return f.message(&split)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := o.decodeVersion(version); err != nil {
		return nil, err
	}
	if o.Container, err = innerID(container); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		from   []byte
		number protowire.Number
		to     *[]byte
	}{{owner, 1, &o.Owner}, {hash, 2, &o.PayloadHash}, {homomorphic, 2, &o.Homomorphic}} {
		if *m.to, err = inner(m.from, m.number); err != nil {
			return nil, err
		}
	}
	if n := len(o.Owner); n != 0 && n != len(Owner{}) {
		return nil, fmt.Errorf("owner of %d bytes: %w", n, base.ErrCorrupt)
	}
	if o.Split != nil {
		return o, o.Split.decode(split)
	}
	return o, nil
}

func (o *Object) decodeVersion(b []byte) error {
	return fields(b, func(f *field) error {
		switch f.number {
		case 1:
			return f.uint32(&o.Major)
		case 2:
			return f.uint32(&o.Minor)
		}
		return nil
	})
}

func (o *Object) addAttribute(f *field) error {
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	var a Attribute
	err := fields(f.bytes, func(f *field) error {
		switch f.number {
		case 1:
			return f.text(&a.Key)
		case 2:
			return f.text(&a.Value)
		}
		return nil
	})
	o.Attributes = append(o.Attributes, a)
	return err
}

func (s *Split) decode(b []byte) error {
	var parent, previous, first []byte
	err := fields(b, func(f *field) error {
		switch f.number {
		case 1:
			return f.message(&parent)
		case 2:
			return f.message(&previous)
		case 3:
			return f.message(&s.parentSignature)
		case 4:
			return f.message(&s.ParentHeader)
		case 5:
			if err := f.want(protowire.BytesType); err != nil {
				return err
			}
			child, err := innerID(f.bytes)
			s.Children = append(s.Children, child)
			return err
		case 6:
			return f.blob(&s.SplitID)
		case 7:
			return f.message(&first)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n := len(s.SplitID); n != 0 && n != 16 {
		return fmt.Errorf("split id of %d bytes: %w", n, base.ErrCorrupt)
	}
	for _, m := range []struct {
		from []byte
		to   *ID
	}{{parent, &s.Parent}, {previous, &s.Previous}, {first, &s.First}} {
		if *m.to, err = innerID(m.from); err != nil {
			return err
		}
	}
	return nil
}

// check verifies that Put may store the object: M3.
func (o *Object) check() error {
	switch {
	case o.headerBytes > maxHeaderBytes:
		return fmt.Errorf("header has %d bytes, at most %d are allowed: %w", o.headerBytes, maxHeaderBytes, base.ErrTooLarge)
	case o.ID.IsZero():
		return fmt.Errorf("object has no id: %w", base.ErrInvalid)
	case o.Container.IsZero():
		return fmt.Errorf("object has no container: %w", base.ErrInvalid)
	case len(bytes.Trim(o.Owner, "\x00")) == 0:
		return fmt.Errorf("object has no owner: %w", base.ErrInvalid)
	case !o.hasPayloadHash:
		return fmt.Errorf("object has no payload hash: %w", base.ErrInvalid)
	case int(o.Type) >= len(typeNames):
		return fmt.Errorf("object has type %d: %w", o.Type, base.ErrInvalid)
	}
	for i, a := range o.Attributes {
		switch {
		case bytes.IndexByte([]byte(a.Key), 0) >= 0:
			return fmt.Errorf("key of attribute %d contains 0x00: %w", i, base.ErrInvalid)
		case bytes.IndexByte([]byte(a.Value), 0) >= 0:
			return fmt.Errorf("value of attribute %d contains 0x00: %w", i, base.ErrInvalid)
		case a.Value == "":
			return fmt.Errorf("value of attribute %d is empty: %w", i, base.ErrInvalid)
		}
	}
	return nil
}

// Attribute returns the first value of an attribute.
func (o *Object) Attribute(key string) (string, bool) {
	for _, a := range o.Attributes {
		if a.Key == key {
			return a.Value, true
		}
	}
	return "", false
}

// address returns the address of the object.
func (o *Object) address() Address { return Address{o.Container, o.ID} }

// parent returns the parent of o, decoded from the parent header in o. It is nil when o has no such
// header.
func (o *Object) parent() (*Object, error) {
	if o.Split == nil || o.Split.Parent.IsZero() || o.Split.ParentHeader == nil {
		return nil, nil
	}
	p, err := decodeHeader(o.Split.ParentHeader)
	if err != nil {
		return nil, fmt.Errorf("decode parent header: %w", err)
	}
	p.ID = o.Split.Parent
	return p, nil
}

// parentBytes returns the parent of o in the encoding of a stored object.
func (o *Object) parentBytes() []byte {
	b := appendID(nil, 1, o.Split.Parent)
	b = appendBytes(b, 2, o.Split.parentSignature)
	return appendBytes(b, 3, o.Split.ParentHeader)
}

// splitInfo returns the split information from o, a part with the header of its parent.
func (o *Object) splitInfo() SplitInfo {
	info := SplitInfo{SplitID: o.Split.SplitID, First: o.Split.First}
	if o.Type == Link || len(o.Split.Children) > 0 {
		info.Link = o.ID
	} else {
		info.LastPart = o.ID
	}
	return info
}

// merge fills each empty field of i from other.
func (i *SplitInfo) merge(other SplitInfo) {
	if len(i.SplitID) == 0 {
		i.SplitID = other.SplitID
	}
	for _, p := range []struct{ to, from *ID }{{&i.LastPart, &other.LastPart}, {&i.Link, &other.Link}, {&i.First, &other.First}} {
		if p.to.IsZero() {
			*p.to = *p.from
		}
	}
}

// Marshal returns the stored encoding of the split information: fields 1 split id, 2 last part, 3
// link, 4 first.
func (i *SplitInfo) Marshal() []byte {
	b := appendBytes(nil, 1, i.SplitID)
	b = appendID(b, 2, i.LastPart)
	b = appendID(b, 3, i.Link)
	return appendID(b, 4, i.First)
}

// DecodeSplitInfo decodes the output of Marshal. Errors: base.ErrCorrupt.
func DecodeSplitInfo(b []byte) (i SplitInfo, err error) {
	err = fields(b, func(f *field) error {
		if f.number == 1 {
			return f.blob(&i.SplitID)
		}
		to := map[protowire.Number]*ID{2: &i.LastPart, 3: &i.Link, 4: &i.First}[f.number]
		if to == nil {
			return nil
		}
		if err := f.want(protowire.BytesType); err != nil {
			return err
		}
		*to, err = innerID(f.bytes)
		return err
	})
	if err == nil && len(i.SplitID) != 0 && len(i.SplitID) != 16 {
		err = fmt.Errorf("split id of %d bytes: %w", len(i.SplitID), base.ErrCorrupt)
	}
	if err != nil {
		return SplitInfo{}, fmt.Errorf("decode split information: %w", err)
	}
	return i, nil
}

// errPayload ends the search for a payload field.
var errPayload = errors.New("payload")

// withoutPayload cuts off the payload of an object and changes nothing else: M2.
func withoutPayload(b []byte) ([]byte, error) {
	err := fields(b, func(f *field) error {
		if f.number == 4 {
			return errPayload
		}
		return nil
	})
	if !errors.Is(err, errPayload) {
		return b, err
	}
	var kept []byte
	for rest := b; len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return nil, fmt.Errorf("cut payload: %w: %w", protowire.ParseError(n), base.ErrCorrupt)
		}
		if number != 4 {
			kept = append(kept, rest[:n]...)
		}
		rest = rest[n:]
	}
	return kept, nil
}

// NewObject encodes o and sets o.ID to the SHA-256 of the header, so equal objects have one id. It
// does not write Split. Errors: those of Put about objects.
func NewObject(o *Object) ([]byte, error) {
	h := appendBytes(nil, 1, appendUint(appendUint(nil, 1, uint64(o.Major)), 2, uint64(o.Minor)))
	h = appendID(h, 2, o.Container)
	h = appendBytes(h, 3, appendBytes(nil, 1, o.Owner))
	h = appendUint(h, 4, o.CreationEpoch)
	h = appendUint(h, 5, o.PayloadBytes)
	const sha256Checksum = 2
	h = appendBytes(h, 6, appendBytes(appendUint(nil, 1, sha256Checksum), 2, o.PayloadHash))
	h = appendUint(h, 7, uint64(o.Type))
	for _, a := range o.Attributes {
		h = appendBytes(h, 10, appendBytes(appendBytes(nil, 1, []byte(a.Key)), 2, []byte(a.Value)))
	}
	o.ID = sha256.Sum256(h)
	b := appendBytes(appendID(nil, 1, o.ID), 3, h)
	made, err := DecodeObject(b)
	if err == nil {
		err = made.check()
	}
	if err != nil {
		return nil, fmt.Errorf("make object: %w", err)
	}
	return b, nil
}

// LockPayload returns the payload of an object of type Lock that locks the given objects.
func LockPayload(objects []ID) (b []byte) {
	for _, id := range objects {
		b = appendID(b, 1, id)
	}
	return b
}

// TombstonePayload returns the payload of a Tombstone object that removes the given objects.
func TombstonePayload(expiration uint64, objects []ID) []byte {
	b := appendUint(nil, 1, expiration)
	for _, id := range objects {
		b = appendID(b, 3, id)
	}
	return b
}
