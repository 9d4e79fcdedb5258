package format

import (
	"encoding/binary"
	"errors"
	"time"
)

// Types of metadata rows of storage.
const (
	MetadataPosition   = "position"
	MetadataServerTime = "server_timestamp"
	MetadataFloor      = "floor"
	MetadataPacks      = "packs"
	MetadataDevice     = "device"
	MetadataCheckpoint = "checkpoint"
	MetadataSince      = "since"
	// MetadataAdoptedPacks has the packs of the checkpoint with which the page began, as
	// EncodePacks writes them: their places are known, and what the bucket has under their names.
	MetadataAdoptedPacks = "adoptedpacks"
	// MetadataLacks is there, with the value 1, when values of the page may have pieces that nobody
	// has sent. Package storage goes by it too.
	MetadataLacks = "lacks"
	// MetadataRetention has what is known of the bucket's retention, as RetentionRow writes it. It
	// stays when all else of a bucket is forgotten: see package storage.
	MetadataRetention = "retention"
)

// RetentionRow is what a page knows of its bucket's retention. As a row: commits 8, age in
// nanoseconds 8, bucket id 16.
type RetentionRow struct {
	Retention
	// Bucket is whose log says so; zero, or that of another bucket: the present log does not say so
	// yet.
	Bucket ID
}

// Encode returns the value of the metadata row, nil for a bucket that keeps all: that needs no row.
func (r RetentionRow) Encode() []byte {
	if r.Retention == (Retention{}) {
		return nil
	}
	b := binary.BigEndian.AppendUint64(nil, r.Commits)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Age))
	return append(b, r.Bucket[:]...)
}

// ParseRetentionRow reads what Encode wrote. What it cannot have written says nothing.
func ParseRetentionRow(b []byte) (r RetentionRow) {
	if len(b) != 32 || binary.BigEndian.Uint64(b[8:]) > 1<<63-1 {
		return r
	}
	r.Commits, r.Age, r.Bucket = binary.BigEndian.Uint64(b), time.Duration(binary.BigEndian.Uint64(b[8:])), ID(b[16:])
	return r
}

// Position says how far a device has read a page's log. The zero value of Number says that it has
// read nothing.
type Position struct {
	Bucket ID // of the keyring
	Number uint64
	Hash   Hash // of entry Number; zero for 0
}

// The layout of a position:
//
//	offset  bytes  content
//	0       16     bucket id, not zero
//	16      8      number, at most MaxNumber
//	24      32     hash of that entry; zero for number 0, and for no other
const positionBytes = 16 + 8 + 32

const positionWhere = "position in the log"

// Encode returns the value of the metadata row; ParsePosition reads it.
func (p Position) Encode() []byte { return p.append(make([]byte, 0, positionBytes)) }

func (p Position) append(b []byte) []byte {
	b = append(b, p.Bucket[:]...)
	b = binary.BigEndian.AppendUint64(b, p.Number)
	return append(b, p.Hash[:]...)
}

// ParsePosition reads what Encode wrote. Errors: *base.CorruptError.
func ParsePosition(b []byte) (Position, error) {
	d := &decoder{where: positionWhere, b: b}
	p := d.position()
	return p, d.end()
}

func (d *decoder) position() (p Position) {
	p.Bucket = d.id()
	if b := d.bytes(8); b != nil {
		p.Number = binary.BigEndian.Uint64(b)
	}
	p.Hash = d.hash()
	if err := p.check(); err != nil && d.err == nil {
		d.err = corrupt(d.where, err)
	}
	return p
}

// check returns what is wrong with the values of p.
func (p Position) check() error {
	switch {
	case p.Bucket.IsZero():
		return errors.New("bucket id is zero")
	case p.Number > MaxNumber:
		return errors.New("number is too great")
	case (p.Number == 0) != p.Hash.IsZero():
		return errors.New("number and hash: one of them is zero")
	}
	return nil
}
