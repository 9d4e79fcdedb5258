package commit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// IDSize is the length of an ID in bytes.
const IDSize = sha256.Size

// ID names a commit: the SHA-256 of its canonical bytes. The zero ID names none.
type ID [IDSize]byte

// String returns the id as 64 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Short returns the first 12 hexadecimal digits, for people.
func (id ID) Short() string { return hex.EncodeToString(id[:6]) }

// IsZero reports whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// Compare orders ids by their bytes.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// Commit is an immutable version of a page. It must not be changed, nor the slice of its parents.
type Commit struct {
	ID ID
	// Timestamp is the time by the clock of the device that made the commit, in nanoseconds since
	// 1970, 0 to limits.MaxTimestamp. See New. It may be below that of a parent, and correctness
	// never depends on it.
	Timestamp int64
	// Generation is the length of the longest path to the first commit.
	Generation uint64
	// Root names the root node of the tree.
	Root object.Digest
	// Parents are strictly ascending: none for the first commit, two for a merge, else one.
	Parents []ID
	// Device and Message are for people; they may be empty.
	Device, Message string

	encoded []byte
}

// First returns the first commit of every page: the empty tree, generation 0, timestamp 0, no
// parents.
func First() *Commit { return first() }

var first = sync.OnceValue(func() *Commit {
	c, err := encode(&fb.Commit{Root: object.Sum(object.Node, fb.EmptyNode())})
	if err != nil {
		panic(fmt.Sprintf("encode the first commit: %v", err)) // its values are constants
	}
	return c
})

// IsFirst reports whether c is the first commit of its page.
func (c *Commit) IsFirst() bool { return c.Generation == 0 }

// Params describes a new commit.
type Params struct {
	// Now is the time of the device.
	Now time.Time
	// Root names the root node of the tree.
	Root object.Digest
	// Parents are one or two different commits in any order.
	Parents []*Commit
	// Device and Message may be empty. They must be valid UTF-8 of at most limits.MaxDeviceBytes
	// and limits.MaxMessageBytes.
	Device, Message string
}

// New makes a commit. Its generation is 1 more than the greatest of its parents'. Its timestamp is
// Now. If the greatest timestamp of the parents is at or after Now, by less than limits.MaxAhead,
// it is 1 ns after that timestamp. So a slow clock does not date a commit before its parents. A
// parent dated further in the future has no effect: timestamps do not run out, and its clock does
// not spread.
//
// Errors: base.ErrInvalid, also when Now is within limits.MaxAhead of limits.MaxTimestamp or
// beyond; base.ErrTooLarge for a device or message beyond its limit.
func New(p Params) (*Commit, error) {
	latest, generation, err := fold(p.Parents)
	if err != nil {
		return nil, err
	}
	now := unixNano(p.Now)
	if now > limits.MaxTimestamp-limits.MaxAhead {
		return nil, fmt.Errorf("make commit: the clock of this device shows %s, which is beyond the last time that a commit can have; set it right: %w",
			p.Now.UTC().Format(time.RFC3339), base.ErrInvalid)
	}
	if latest >= now && latest-now < limits.MaxAhead {
		now = latest + 1
	}
	return encode(&fb.Commit{
		Timestamp:  now,
		Generation: generation,
		Root:       p.Root,
		Parents:    parentIDs(p.Parents),
		Device:     p.Device,
		Message:    p.Message,
	})
}

// NewMerge makes the commit that joins a and b, in any order, with the merged tree root. Its
// timestamp is the greater one of the parents, and nothing in it depends on the device: devices
// that merge the same commits to the same content make the same commit. Errors: base.ErrInvalid.
func NewMerge(root object.Digest, a, b *Commit) (*Commit, error) {
	parents := []*Commit{a, b}
	latest, generation, err := fold(parents)
	if err != nil {
		return nil, err
	}
	return encode(&fb.Commit{Timestamp: latest, Generation: generation, Root: root, Parents: parentIDs(parents)})
}

// unixNano returns t in nanoseconds since 1970: 0 for earlier times, and the greatest int64 for
// times beyond it.
func unixNano(t time.Time) int64 {
	switch s := t.Unix(); {
	case s < 0:
		return 0
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// fold returns the largest timestamp of parents, and the generation of their child. It refuses
// invalid sets of parents.
func fold(parents []*Commit) (latest int64, generation uint64, err error) {
	if len(parents) == 0 || len(parents) > 2 || slices.Contains(parents, nil) {
		return 0, 0, fmt.Errorf("make commit with %d parents: %w", len(parents), base.ErrInvalid)
	}
	if len(parents) == 2 && parents[0].ID == parents[1].ID {
		return 0, 0, fmt.Errorf("make commit with parent %s twice: %w", parents[0].ID, base.ErrInvalid)
	}
	latest, generation = greatest(parents)
	if generation == math.MaxUint64 {
		return 0, 0, fmt.Errorf("make commit above the greatest generation: %w", base.ErrInvalid)
	}
	return latest, generation + 1, nil
}

// greatest returns the greatest timestamp and the greatest generation of commits.
func greatest(commits []*Commit) (timestamp int64, generation uint64) {
	for _, c := range commits {
		timestamp, generation = max(timestamp, c.Timestamp), max(generation, c.Generation)
	}
	return timestamp, generation
}

// parentIDs returns the sorted ids of commits.
func parentIDs(parents []*Commit) [][IDSize]byte {
	ids := make([][IDSize]byte, len(parents))
	for i, p := range parents {
		ids[i] = p.ID
	}
	slices.SortFunc(ids, func(a, b [IDSize]byte) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

func encode(f *fb.Commit) (*Commit, error) {
	b, err := fb.EncodeCommit(f)
	if err != nil {
		return nil, fmt.Errorf("make commit: %w", err)
	}
	return fromDecoded(b, f), nil
}

// fromDecoded returns the commit with the canonical bytes b, which it retains, and the content f.
func fromDecoded(b []byte, f *fb.Commit) *Commit {
	c := &Commit{
		ID:         sha256.Sum256(b),
		Timestamp:  f.Timestamp,
		Generation: f.Generation,
		Root:       f.Root,
		Device:     f.Device,
		Message:    f.Message,
		encoded:    b,
	}
	for _, p := range f.Parents {
		c.Parents = append(c.Parents, p)
	}
	return c
}

// Encode returns the canonical bytes of c, which the caller must not change.
func (c *Commit) Encode() []byte { return c.encoded }

// Parse reads a commit from its canonical bytes, which it does not retain. A commit of generation 0
// must be the first commit. Errors: *base.CorruptError, *base.FormatError.
func Parse(b []byte) (*Commit, error) {
	f, err := fb.DecodeCommit(b)
	if err != nil {
		return nil, err
	}
	if f.Generation == 0 {
		if !bytes.Equal(b, First().encoded) {
			return nil, &base.CorruptError{Where: "commit", Got: "a commit of generation 0 that is not the first commit"}
		}
		return First(), nil
	}
	return fromDecoded(bytes.Clone(b), f), nil
}

// Of returns the commit that has the fields of c, except the ID, which it computes. Errors:
// base.ErrInvalid, also for a commit of generation 0 that is not the first commit;
// base.ErrTooLarge.
func Of(c *Commit) (*Commit, error) {
	f := &fb.Commit{Timestamp: c.Timestamp, Generation: c.Generation, Root: c.Root, Device: c.Device, Message: c.Message}
	for _, p := range c.Parents {
		f.Parents = append(f.Parents, p)
	}
	out, err := encode(f)
	if err == nil && out.IsFirst() && out.ID != First().ID {
		return nil, fmt.Errorf("make commit of generation 0 that is not the first commit: %w", base.ErrInvalid)
	}
	return out, err
}

// Compare orders commits by timestamp, then id.
func Compare(a, b *Commit) int {
	return cmp.Or(cmp.Compare(a.Timestamp, b.Timestamp), a.ID.Compare(b.ID))
}

// CheckParents verifies that the generation of c follows from its parents, given in the order of
// c.Parents. Timestamps are not compared: clocks may be wrong, and be corrected. Errors:
// *base.CorruptError for a wrong commit; base.ErrInvalid when parents are not the parents of c.
func CheckParents(c *Commit, parents []*Commit) error {
	if len(parents) != len(c.Parents) {
		return fmt.Errorf("check parents of commit %s: given %d of %d: %w", c.ID, len(parents), len(c.Parents), base.ErrInvalid)
	}
	for i, p := range parents {
		if p == nil || p.ID != c.Parents[i] {
			return fmt.Errorf("check parents of commit %s: parent %d is another: %w", c.ID, i, base.ErrInvalid)
		}
	}
	if c.IsFirst() {
		return nil
	}
	if _, generation := greatest(parents); c.Generation-1 != generation {
		return corrupt(c, fmt.Sprintf("generation %d above parents of generation %d", c.Generation, generation))
	}
	return nil
}

func corrupt(c *Commit, got string) error {
	return &base.CorruptError{Where: "commit", Key: c.ID.String(), Got: got}
}
