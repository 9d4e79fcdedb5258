package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/limits"
)

// The lists that both bodies and checkpoints have. Each is a number of members (uvarint), then the
// members:
//
//	pack          id (16), flags (bit 0: eager), bytes of the object (uvarint), pieces (uvarint)
//	tag           flags (bit 0: removed), length of the name (uvarint, 1 to limits.MaxTagBytes),
//	              name, and, if it is not removed, commit id (32)
//	condemnation  number of packs (uvarint), their ids (16 each); number of checkpoints (uvarint),
//	              their numbers (uvarint each); below (uvarint)
//	retention     commits (uvarint), age in nanoseconds (uvarint, at most 2^63-1); no list
const (
	flagEager   = 1 << 0
	flagRemoved = 1 << 0

	leastTag     = 1 + 1 + 1                // bytes of a removed tag
	leastHeldTag = leastTag + commit.IDSize // of one that is not
)

func compareIDs(a, b ID) int { return bytes.Compare(a[:], b[:]) }

func sortPacks(packs []PackRef) {
	slices.SortFunc(packs, func(a, b PackRef) int { return compareIDs(a.ID, b.ID) })
}

func sortTags(tags []TagChange) {
	slices.SortFunc(tags, func(a, b TagChange) int { return strings.Compare(a.Name, b.Name) })
}

func appendPacks(b []byte, packs []PackRef) []byte {
	b = binary.AppendUvarint(b, uint64(len(packs)))
	for i := range packs {
		p := &packs[i]
		b = append(b, p.ID[:]...)
		var flags byte
		if p.Eager {
			flags = flagEager
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, p.Bytes)
		b = binary.AppendUvarint(b, uint64(p.Pieces))
	}
	return b
}

// packs reads a list of at least so many packs.
func (d *decoder) packs(least uint64) []PackRef {
	n := d.count("packs", least, 16+1+1+1)
	if n == 0 {
		return nil
	}
	packs := make([]PackRef, n)
	for i := range packs {
		p := &packs[i]
		p.ID = d.id()
		p.Eager = d.flags("a pack", flagEager) != 0
		p.Bytes = d.uvarint("length of a pack", 1, MaxPackObjectBytes)
		p.Pieces = uint32(d.uvarint("number of pieces", 1, MaxPackPieces))
	}
	return packs
}

func checkTags(tags []TagChange) error {
	for i := range tags {
		t := &tags[i]
		switch {
		case t.Name == "" || len(t.Name) > limits.MaxTagBytes:
			return fmt.Errorf("name of a tag has %d bytes, not 1 to %d", len(t.Name), limits.MaxTagBytes)
		case !utf8.ValidString(t.Name):
			return errors.New("name of a tag is not UTF-8")
		case i > 0 && tags[i-1].Name >= t.Name:
			return errors.New("tags are not sorted, or one is there twice")
		case t.Removed != t.Commit.IsZero():
			return fmt.Errorf("a tag points to commit %s, removed %t", t.Commit.Short(), t.Removed)
		}
	}
	return nil
}

func appendTags(b []byte, tags []TagChange) []byte {
	b = binary.AppendUvarint(b, uint64(len(tags)))
	for i := range tags {
		t := &tags[i]
		var flags byte
		if t.Removed {
			flags = flagRemoved
		}
		b = append(b, flags)
		b = appendLengthAndBytes(b, t.Name)
		if !t.Removed {
			b = append(b, t.Commit[:]...)
		}
	}
	return b
}

// tags reads a list of least to most tags that have at least each bytes.
func (d *decoder) tags(least uint64, each, most int) []TagChange {
	n := d.count("tags", least, each)
	if n > most {
		d.failf("%d tags, at most %d", n, most)
		return nil
	}
	if n == 0 {
		return nil
	}
	tags := make([]TagChange, n)
	for i := range tags {
		t := &tags[i]
		t.Removed = d.flags("a tag", flagRemoved) != 0
		t.Name = string(d.lengthAndBytes("a tag's name", 1, limits.MaxTagBytes))
		if !t.Removed {
			t.Commit = d.commitID()
		}
		if d.err != nil {
			return nil
		}
	}
	return tags
}

func appendIDs(b []byte, ids []ID) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

func (d *decoder) ids(what string, least uint64) []ID {
	n := d.count(what, least, 16)
	if n == 0 {
		return nil
	}
	ids := make([]ID, n)
	for i := range ids {
		ids[i] = d.id()
	}
	return ids
}

func appendNumbers(b []byte, numbers []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(numbers)))
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func (d *decoder) numbers(what string, least uint64) []uint64 {
	n := d.count(what, least, 1)
	if n == 0 {
		return nil
	}
	numbers := make([]uint64, n)
	for i := range numbers {
		numbers[i] = d.uvarint(what, 1, MaxNumber)
	}
	return numbers
}

func appendCondemnation(b []byte, c *Condemnation) []byte {
	b = appendIDs(b, c.Packs)
	b = appendNumbers(b, c.Checkpoints)
	return binary.AppendUvarint(b, c.Below)
}

func (d *decoder) condemnation() (c Condemnation) {
	c.Packs = d.ids("condemned packs", 0)
	c.Checkpoints = d.numbers("condemned checkpoints", 0)
	c.Below = d.uvarint("number below which is condemned", 0, MaxNumber)
	return c
}

func appendRetention(b []byte, r Retention) []byte {
	b = binary.AppendUvarint(b, r.Commits)
	return binary.AppendUvarint(b, uint64(r.Age))
}

func (d *decoder) retention() (r Retention) {
	r.Commits = d.uvarint("number of commits to keep", 0, math.MaxUint64)
	r.Age = time.Duration(d.uvarint("age of commits to keep", 0, math.MaxInt64))
	return r
}
