package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// The layout of a body's plaintext:
//
//	offset  bytes  content
//	0       1      format version: 1
//	1       2      flags, one for each list below that is there; a list that is there is not empty
//	3       16     fingerprint of the device
//	               bit 0: commits      number (uvarint); for each: flags (bits 0 and 1: base 0 the
//	                                   empty tree, 1 the first parent, 2 the second one, 3 another
//	                                   commit; bit 2: diff is an object; bit 3: what was built on
//	                                   it is in the log or was given up), length (uvarint) and
//	                                   commit, for base 3 its id (32); diff
//	               bit 1: explanations number (uvarint); for each: which of the commits (uvarint,
//	                                   ascending), flags (bit 2 as above), digest of the root
//	                                   (33), diff
//	               bit 2: packs        announced here
//	               bit 3: relies       number (uvarint), ids of packs
//	               bit 4: relies       number (uvarint), numbers of entries (uvarint each)
//	               bit 5: tags
//	               bit 6: retention
//	               bit 7: condemned    one condemnation
//	               bit 8: pieces       number (uvarint); for each: kind (1), length (uvarint, 1 to
//	                                   65536) and content
//	               bit 9: values may have pieces that nobody has sent; no list
//	               bit 10: parents of commits may have been given up; no list
//	               bit 11: the number (uvarint) of the entry as of which bases outside the body
//	                           were heads of the log
//	               bit 12: the log begins anew with the checkpoint of this number; no list
//	               bit 13: given up     number (uvarint), ids of commits (32 each)
//
// A diff is its length (uvarint) and its bytes, or, as an object, its id (16) and the length of its
// plaintext (uvarint).
const (
	hasCommits = 1 << iota
	hasExplanations
	hasPacks
	hasRelies
	hasReliesEntries
	hasTags
	hasRetention
	hasCondemned
	hasPieces
	lacksPieces
	isShallow
	hasSince
	beginsAnew
	hasGivenUp
	knownLists = 1<<iota - 1
)

const (
	baseMask    = 3
	baseEmpty   = 0
	baseParent  = 1 // and 2 for the second one
	baseOther   = 3
	diffObject  = 1 << 2
	isPast      = 1 << 3
	bodyWhere   = "body of log entry"
	leastCommit = 100 // bytes: less than any commit has
)

// Encode returns the canonical plaintext of the body, at most MaxBodyBytes. It sorts the lists that
// are sets. It trusts that the digests of pieces are right. Errors: base.ErrInvalid,
// base.ErrTooLarge.
func (b *Body) Encode() ([]byte, error) {
	plain, _, err := b.encode()
	return plain, err
}

// encode is Encode, and says what of the plaintext is compressed.
func (b *Body) encode() (plain []byte, parts []seal.Part, err error) {
	b.sort()
	index, err := b.check()
	if err == nil {
		err = checkPieces(b.Pieces)
	}
	if err != nil {
		return nil, nil, invalid(bodyWhere, err)
	}
	if n := b.leastBytes(); n > MaxBodyBytes {
		return nil, nil, b.tooLarge(n)
	}
	part := func(to int, compress bool) { parts = append(parts, seal.Part{To: to, Compress: compress}) }
	out := append([]byte{formatVersion}, 0, 0)
	binary.BigEndian.PutUint16(out[1:], b.lists())
	out = append(out, b.Device[:]...)
	out = b.appendCommits(out, part)
	if len(b.Explanations) > 0 {
		out = binary.AppendUvarint(out, uint64(len(b.Explanations)))
		for i := range b.Explanations {
			e := &b.Explanations[i]
			out = binary.AppendUvarint(out, uint64(index[e.Merge]))
			out = append(out, e.Diff.flag())
			out = append(out, e.Root[:]...)
			part(len(out), false)
			out = e.Diff.append(out)
			part(len(out), !b.Commits[index[e.Merge]].Plain)
		}
	}
	out = b.appendObjects(out)
	if len(b.Pieces) > 0 {
		out = binary.AppendUvarint(out, uint64(len(b.Pieces)))
		for i := range b.Pieces {
			p := &b.Pieces[i]
			if i == 0 || p.Apart || p.Plain != b.Pieces[i-1].Plain {
				part(len(out), i > 0 && !b.Pieces[i-1].Plain)
			}
			out = append(out, byte(p.Digest.Kind()))
			out = binary.AppendUvarint(out, uint64(len(p.Content)))
			out = append(out, p.Content...)
		}
		part(len(out), !b.Pieces[len(b.Pieces)-1].Plain)
	}
	if b.Since > 0 {
		out = binary.AppendUvarint(out, b.Since)
	}
	if len(b.GivenUp) > 0 {
		out = binary.AppendUvarint(out, uint64(len(b.GivenUp)))
		for i := range b.GivenUp {
			out = append(out, b.GivenUp[i][:]...)
		}
	}
	if len(out) > MaxBodyBytes {
		return nil, nil, b.tooLarge(len(out))
	}
	return out, parts, nil
}

// leastBytes returns the length of what may be long in the body.
func (b *Body) leastBytes() (n int) {
	for i := range b.Commits {
		n += len(b.Commits[i].Commit.Encode()) + len(b.Commits[i].Diff.Inline)
	}
	for i := range b.Explanations {
		n += len(b.Explanations[i].Diff.Inline)
	}
	for i := range b.Pieces {
		n += len(b.Pieces[i].Content)
	}
	return n
}

// lists returns the flags of the lists that are there.
func (b *Body) lists() (flags uint16) {
	for bit, there := range []bool{
		len(b.Commits) > 0, len(b.Explanations) > 0, len(b.Packs) > 0, len(b.Relies) > 0, len(b.ReliesEntries) > 0,
		len(b.Tags) > 0, b.Retention != nil, b.Condemned != nil, len(b.Pieces) > 0, b.Lacks, b.Shallow, b.Since > 0, b.Renewed, len(b.GivenUp) > 0,
	} {
		if there {
			flags |= 1 << bit
		}
	}
	return flags
}

// appendCommits appends the commits, and calls part at both ends of what is compressed by itself.
func (b *Body) appendCommits(out []byte, part func(to int, compress bool)) []byte {
	if len(b.Commits) == 0 {
		return out
	}
	out = binary.AppendUvarint(out, uint64(len(b.Commits)))
	for i := range b.Commits {
		c := &b.Commits[i]
		kind := byte(baseOther)
		if c.Base.Empty {
			kind = baseEmpty
		} else if at := slices.Index(c.Commit.Parents, c.Base.Commit); at >= 0 {
			kind = baseParent + byte(at)
		}
		part(len(out), false)
		flags := kind | c.Diff.flag()
		if c.Past {
			flags |= isPast
		}
		out = append(out, flags)
		out = appendLengthAndBytes(out, c.Commit.Encode())
		if kind == baseOther {
			out = append(out, c.Base.Commit[:]...)
		}
		out = c.Diff.append(out)
		part(len(out), !c.Plain)
	}
	return out
}

// appendObjects appends the lists between explanations and pieces.
func (b *Body) appendObjects(out []byte) []byte {
	if len(b.Packs) > 0 {
		out = appendPacks(out, b.Packs)
	}
	if len(b.Relies) > 0 {
		out = appendIDs(out, b.Relies)
	}
	if len(b.ReliesEntries) > 0 {
		out = appendNumbers(out, b.ReliesEntries)
	}
	if len(b.Tags) > 0 {
		out = appendTags(out, b.Tags)
	}
	if b.Retention != nil {
		out = appendRetention(out, *b.Retention)
	}
	if b.Condemned != nil {
		out = appendCondemnation(out, b.Condemned)
	}
	return out
}

func (d *Diff) flag() byte {
	if d.Pack.IsZero() {
		return 0
	}
	return diffObject
}

func (d *Diff) append(b []byte) []byte {
	if d.Pack.IsZero() {
		return appendLengthAndBytes(b, d.Inline)
	}
	b = append(b, d.Pack[:]...)
	return binary.AppendUvarint(b, d.Bytes)
}

// checkPieces verifies pieces whose digests are set.
func checkPieces(pieces []InlinePiece) error {
	if len(pieces) > MaxBodyPieces {
		return fmt.Errorf("%d pieces, at most %d: %w", len(pieces), MaxBodyPieces, base.ErrTooLarge)
	}
	digests := make([]object.Digest, len(pieces))
	for i := range pieces {
		p := &pieces[i]
		if !isValuePiece(p.Digest) || len(p.Content) == 0 || len(p.Content) > limits.MaxPieceBytes {
			return fmt.Errorf("piece %s of %d bytes is no chunk and no index", p.Digest.Short(), len(p.Content))
		}
		digests[i] = p.Digest
	}
	return checkDistinctDigests(digests)
}

// checkDistinctDigests verifies that no piece is there twice. It sorts digests.
func checkDistinctDigests(digests []object.Digest) error {
	slices.SortFunc(digests, func(a, b object.Digest) int { return bytes.Compare(a[:], b[:]) })
	for i := 1; i < len(digests); i++ {
		if digests[i] == digests[i-1] {
			return fmt.Errorf("piece %s is there twice", digests[i].Short())
		}
	}
	return nil
}

// ParseBody reads what Encode wrote, strictly. Slices of the result borrow p. Errors:
// *base.CorruptError, *base.FormatError.
func ParseBody(p []byte) (*Body, error) {
	if len(p) > MaxBodyBytes {
		return nil, corrupt(bodyWhere, fmt.Errorf("%d bytes, at most %d", len(p), MaxBodyBytes))
	}
	d := decode(bodyWhere, p)
	lists := d.uint16()
	if lists&^knownLists != 0 {
		d.failf("flags %#04x", lists)
	}
	b := &Body{Device: d.id(), Lacks: lists&lacksPieces != 0, Shallow: lists&isShallow != 0, Renewed: lists&beginsAnew != 0}
	if lists&hasCommits != 0 {
		b.Commits = d.commits()
	}
	if lists&hasExplanations != 0 {
		b.Explanations = d.explanations(b.Commits)
	}
	d.objects(b, lists)
	if lists&hasPieces != 0 {
		b.Pieces = d.pieces()
	}
	if lists&hasSince != 0 {
		b.Since = d.uvarint("as of which entry", 1, MaxNumber)
	}
	if lists&hasGivenUp != 0 {
		for range d.count("commits that are given up", 1, commit.IDSize) {
			b.GivenUp = append(b.GivenUp, d.commitID())
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	sumPieces(b.Pieces)
	_, err := b.check()
	if err == nil {
		err = checkPieces(b.Pieces)
	}
	if err != nil {
		return nil, corrupt(bodyWhere, err)
	}
	return b, nil
}

func (d *decoder) commits() []CommitChange {
	commits := make([]CommitChange, d.count("commits", 1, leastCommit))
	for i := range commits {
		c := &commits[i]
		flags := d.flags("a commit", baseMask|diffObject|isPast)
		encoded := d.lengthAndBytes("a commit", leastCommit, maxCommitBytes)
		var other commit.ID
		if flags&baseMask == baseOther {
			other = d.commitID()
		}
		c.Diff, c.Past = d.diff(flags), flags&isPast != 0
		if d.err != nil {
			return nil
		}
		var err error
		if c.Commit, err = commit.Parse(encoded); err != nil {
			d.failf("commit %d: %w", i, err)
			return nil
		}
		switch kind := int(flags & baseMask); {
		case kind == baseEmpty:
			c.Base.Empty = true
		case kind == baseOther:
			c.Base.Commit = other
			if slices.Contains(c.Commit.Parents, other) {
				d.failf("commit %d: base of its diff is written out and a parent", i)
			}
		case kind > len(c.Commit.Parents):
			d.failf("commit %d: base of its diff is parent %d of %d", i, kind, len(c.Commit.Parents))
		default:
			c.Base.Commit = c.Commit.Parents[kind-baseParent]
		}
	}
	return commits
}

func (d *decoder) diff(flags byte) (f Diff) {
	if flags&diffObject == 0 {
		f.Inline = d.lengthAndBytes("a diff", 0, MaxBodyBytes)
		return f
	}
	f.Pack = d.id()
	f.Bytes = d.uvarint("length of a diff", 1, MaxDiffBytes)
	if f.Pack.IsZero() {
		d.failf("id of a diff is zero")
	}
	return f
}

func (d *decoder) explanations(commits []CommitChange) []Explanation {
	explanations := make([]Explanation, d.count("explanations", 1, 1+1+object.DigestSize+1))
	for i := range explanations {
		e := &explanations[i]
		if at := d.uvarint("which merge", 0, MaxBodyBytes); at < uint64(len(commits)) {
			e.Merge = commits[at].Commit.ID
		} else {
			d.failf("explanation of commit %d, and there are %d", at, len(commits))
		}
		flags := d.flags("an explanation", diffObject)
		e.Root = d.digest()
		e.Diff = d.diff(flags)
		if d.err != nil {
			return nil
		}
	}
	return explanations
}

// objects reads the lists between explanations and pieces.
func (d *decoder) objects(b *Body, lists uint16) {
	if lists&hasPacks != 0 {
		b.Packs = d.packs(1)
	}
	if lists&hasRelies != 0 {
		b.Relies = d.ids("packs that it relies on", 1)
	}
	if lists&hasReliesEntries != 0 {
		b.ReliesEntries = d.numbers("entries that it relies on", 1)
	}
	if lists&hasTags != 0 {
		b.Tags = d.tags(1, leastTag, MaxBodyTags)
	}
	if lists&hasRetention != 0 {
		r := d.retention()
		b.Retention = &r
	}
	if lists&hasCondemned != 0 {
		c := d.condemnation()
		b.Condemned = &c
	}
}

// pieces reads the pieces; their digests have the kind alone.
func (d *decoder) pieces() []InlinePiece {
	n := d.count("pieces", 1, 1+1+1)
	if n > MaxBodyPieces {
		d.failf("%d pieces, at most %d", n, MaxBodyPieces)
		return nil
	}
	pieces := make([]InlinePiece, n)
	for i := range pieces {
		kind := d.byte()
		content := d.lengthAndBytes("a piece", 1, limits.MaxPieceBytes)
		if kind > byte(object.IndexBit) {
			d.failf("piece of kind %d", kind)
		}
		if d.err != nil {
			return nil
		}
		pieces[i] = InlinePiece{Digest: object.Digest{kind}, Content: content}
	}
	return pieces
}

// sumPieces computes the digests of pieces whose kinds are set.
func sumPieces(pieces []InlinePiece) {
	for _, kind := range []object.Kind{object.Chunk, object.IndexBit} {
		n, at := 0, -1
		for i := range pieces {
			if pieces[i].Digest.Kind() == kind {
				n++
			}
		}
		object.SumEach(kind, n, func(int) ([]byte, *object.Digest) {
			for at++; pieces[at].Digest.Kind() != kind; at++ {
			}
			return pieces[at].Content, &pieces[at].Digest
		})
	}
}
