package flatbuffers

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// Commit is the content of a commit.
type Commit struct {
	// Timestamp is in nanoseconds since 1970, 0 to limits.MaxTimestamp.
	Timestamp int64
	// Generation is the length of the longest path to the first commit; 0 only for the first
	// commit.
	Generation uint64
	// Root is the digest of the tree's root node.
	Root object.Digest
	// Parents are the ids of the parents, strictly ascending: none for the first commit, else one
	// or two.
	Parents [][32]byte
	// Device and Message are valid UTF-8 of at most limits.MaxDeviceBytes and
	// limits.MaxMessageBytes; both may be empty.
	Device, Message string
}

// The layout of a commit:
//
//	offset  bytes  content
//	8       16     vtable
//	24      36     table: distance to the vtable, places of root_node_id, creation_timestamp (8),
//	               generation (8), places of parent_ids, device, message
//	60      40     root_node_id
//	100     4+32p  parent_ids
//	        4+d+1  device, then a zero
//	        4+m+1  message, then a zero
const (
	commitIdent      = "LCO1"
	commitWhere      = "commit"
	commitTable      = 24
	commitTableLen   = 36
	commitRootPos    = commitTable + commitTableLen
	commitParentsPos = commitRootPos + 4 + (object.DigestSize+3)&^3
	commitIDSize     = 32
	maxParents       = 2
)

// Fields of the table, relative to the buffer.
const (
	commitRootField = commitTable + 4
	commitTimeField = commitTable + 8
	commitGenField  = commitTable + 16
	commitParField  = commitTable + 24
	commitDevField  = commitTable + 28
	commitMsgField  = commitTable + 32
)

var commitFields = []uint16{8, 16, 4, 24, 28, 32}

// check returns what is wrong with the values of c, or "", and whether a limit is exceeded.
func (c *Commit) check() (problem string, tooLarge bool) {
	switch {
	case c.Timestamp < 0 || c.Timestamp > limits.MaxTimestamp:
		return fmt.Sprintf("timestamp %d outside 0 to 2^62", c.Timestamp), false
	case len(c.Parents) > maxParents:
		return fmt.Sprintf("%d parents", len(c.Parents)), false
	case (c.Generation == 0) != (len(c.Parents) == 0):
		return fmt.Sprintf("generation %d with %d parents", c.Generation, len(c.Parents)), false
	case len(c.Parents) == maxParents && bytes.Compare(c.Parents[0][:], c.Parents[1][:]) >= 0:
		return "parents are not strictly ascending", false
	case !c.Root.Kind().IsNode():
		return fmt.Sprintf("root with prefix %#02x is no node", c.Root[0]), false
	case !utf8.ValidString(c.Device):
		return "device is not UTF-8", false
	case !utf8.ValidString(c.Message):
		return "message is not UTF-8", false
	case len(c.Device) > limits.MaxDeviceBytes:
		return fmt.Sprintf("device name of %d bytes", len(c.Device)), true
	case len(c.Message) > limits.MaxMessageBytes:
		return fmt.Sprintf("message of %d bytes", len(c.Message)), true
	}
	return "", false
}

// EncodeCommit returns the canonical bytes of c, which it does not retain. Errors: base.ErrInvalid,
// base.ErrTooLarge for a device or message beyond its limit.
func EncodeCommit(c *Commit) ([]byte, error) {
	if problem, tooLarge := c.check(); tooLarge {
		return nil, fmt.Errorf("encode commit: %s: %w", problem, base.ErrTooLarge)
	} else if problem != "" {
		return nil, fmt.Errorf("encode commit: %s: %w", problem, base.ErrInvalid)
	}
	return c.append(), nil
}

func (c *Commit) append() []byte {
	devicePos := commitParentsPos + 4 + commitIDSize*len(c.Parents)
	messagePos := devicePos + 4 + roundUp(len(c.Device)+1)
	b := make([]byte, messagePos+4+roundUp(len(c.Message)+1))
	putHeader(b, commitIdent, commitTableLen, commitFields)
	le.PutUint64(b[commitTimeField:], uint64(c.Timestamp))
	le.PutUint64(b[commitGenField:], c.Generation)
	putOffset(b, commitRootField, commitRootPos)
	putOffset(b, commitParField, commitParentsPos)
	putOffset(b, commitDevField, devicePos)
	putOffset(b, commitMsgField, messagePos)
	le.PutUint32(b[commitRootPos:], object.DigestSize)
	copy(b[commitRootPos+4:], c.Root[:])
	le.PutUint32(b[commitParentsPos:], uint32(commitIDSize*len(c.Parents)))
	for i, p := range c.Parents {
		copy(b[commitParentsPos+4+commitIDSize*i:], p[:])
	}
	le.PutUint32(b[devicePos:], uint32(len(c.Device)))
	copy(b[devicePos+4:], c.Device)
	le.PutUint32(b[messagePos:], uint32(len(c.Message)))
	copy(b[messagePos+4:], c.Message)
	return b
}

// maxCommitBytes bounds the encoding of a commit.
const maxCommitBytes = commitParentsPos + 4 + maxParents*commitIDSize + 4 + limits.MaxDeviceBytes + 4 + 4 + limits.MaxMessageBytes + 4

// DecodeCommit reads a commit from its canonical bytes, which it does not retain. Errors:
// *base.CorruptError, *base.FormatError.
func DecodeCommit(b []byte) (*Commit, error) {
	if err := checkIdent(commitWhere, b, commitIdent, commitParentsPos); err != nil {
		return nil, err
	}
	if len(b) > maxCommitBytes {
		return nil, corrupt(commitWhere, "%d bytes, at most %d are possible", len(b), maxCommitBytes)
	}
	parentBytes, devicePos, err := vector(commitWhere, b, commitParentsPos, 1)
	if err != nil {
		return nil, err
	}
	if parentBytes%commitIDSize != 0 || parentBytes > maxParents*commitIDSize {
		return nil, corrupt(commitWhere, "parents of %d bytes", parentBytes)
	}
	device, messagePos, err := text(b, devicePos)
	if err != nil {
		return nil, err
	}
	message, _, err := text(b, messagePos)
	if err != nil {
		return nil, err
	}
	c := &Commit{
		Timestamp:  int64(le.Uint64(b[commitTimeField:])),
		Generation: le.Uint64(b[commitGenField:]),
		Root:       object.Digest(b[commitRootPos+4 : commitRootPos+4+object.DigestSize]),
		Device:     string(device),
		Message:    string(message),
	}
	for i := range parentBytes / commitIDSize {
		at := commitParentsPos + 4 + commitIDSize*i
		c.Parents = append(c.Parents, [32]byte(b[at:at+commitIDSize]))
	}
	if problem, _ := c.check(); problem != "" {
		return nil, corrupt(commitWhere, "%s", problem)
	}
	if !bytes.Equal(c.append(), b) {
		return nil, corrupt(commitWhere, "not the canonical layout")
	}
	return c, nil
}

// text returns the string at pos of a commit, and the position after the string, its zero and its
// padding.
func text(b []byte, pos int) (s []byte, end int, err error) {
	if pos < 0 || len(b)-pos < 4 {
		return nil, 0, corrupt(commitWhere, "ends at %d, before a string's length at %d", len(b), pos)
	}
	n := le.Uint32(b[pos:])
	if uint64(n) >= uint64(len(b)-pos-4) {
		return nil, 0, corrupt(commitWhere, "string at %d of %d bytes goes beyond its %d bytes", pos, n, len(b))
	}
	start := pos + 4
	return b[start : start+int(n)], start + roundUp(int(n)+1), nil
}
