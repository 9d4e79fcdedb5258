package wire

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// Bounds of records. They are part of the format.
const (
	// MaxRecordBytes bounds the fields of a record.
	MaxRecordBytes = 2 << 20
	// MaxInlineDiff bounds a difference that is inline in its record.
	MaxInlineDiff = 1 << 20
	// MaxNear bounds the nearest ancestors of a Commit.
	MaxNear = 4096
	// MaxRuns bounds the runs of one kind in a checkpoint, which a reader reads at once. It is more
	// than MergeRuns leaves: runFanout for each size class.
	MaxRuns = 256
	// MaxPackBytes bounds a pack as stored.
	MaxPackBytes = 64 << 20
	// MaxPackPieces bounds the pieces of a pack.
	MaxPackPieces = 100_000
)

// Record is one of Size, Gone, Pack, Piece, Missing, Commit, Explanation, Base, Run, Snapshot,
// Tag and Retention, as a pointer.
type Record interface {
	// tag returns the type of the record.
	tag() byte
	// code writes its fields, or reads them, and refuses bad ones. Slices may borrow the input.
	code(c *coder)
	// compare compares its key with that of a record of the same type.
	compare(Record) int
}

// Compare compares the keys of two records of one type.
func Compare(a, b Record) int { return a.compare(b) }

// The types of records, in the order in which they stand in a stream.
const (
	tagSize byte = iota + 1
	tagBase
	tagRun
	tagSnapshot
	tagGone
	tagPack
	tagPiece
	tagMissing
	tagCommit
	tagExplanation
	tagTag
	tagRetention
)

// newRecords make zero records, by their types.
var newRecords = [...]func() Record{
	tagSize:        func() Record { return new(Size) },
	tagBase:        func() Record { return new(Base) },
	tagRun:         func() Record { return new(Run) },
	tagSnapshot:    func() Record { return new(Snapshot) },
	tagGone:        func() Record { return new(Gone) },
	tagPack:        func() Record { return new(Pack) },
	tagPiece:       func() Record { return new(Piece) },
	tagMissing:     func() Record { return new(Missing) },
	tagCommit:      func() Record { return new(Commit) },
	tagExplanation: func() Record { return new(Explanation) },
	tagTag:         func() Record { return new(Tag) },
	tagRetention:   func() Record { return new(Retention) },
}

// Size begins a body. Values is how many keys get a value. Bytes is the length of the eager packs.
// Both are only for display.
type Size struct{ Values, Bytes uint64 }

func (*Size) tag() byte          { return tagSize }
func (*Size) compare(Record) int { return 0 }

func (r *Size) code(c *coder) {
	c.number(&r.Values, "number of values", 0, maxDisplay)
	c.number(&r.Bytes, "bytes of packs", 0, maxDisplay)
}

// maxDisplay bounds figures that are only for display, so that sums of them do not overflow.
const maxDisplay = 1 << 50

// Base begins a checkpoint: it names the entry for which the checkpoint stands. Hash is that of the
// entry, zero if the checkpoint stands for nothing.
type Base struct {
	Number uint64
	Hash   epoch.Hash
}

func (*Base) tag() byte          { return tagBase }
func (*Base) compare(Record) int { return 0 }

func (r *Base) code(c *coder) {
	c.number(&r.Number, "number of an entry", 0, MaxNumber)
	c.fixed(r.Hash[:])
	c.refuse(r.Hash == (epoch.Hash{}) && r.Number > 0, "checkpoint of entry %d without a hash", r.Number)
}

// RunKind is the type of the records of a run.
type RunKind byte

// The kinds of runs.
const (
	Commits   = RunKind(tagCommit)
	Packs     = RunKind(tagPack)
	GivenUp   = RunKind(tagGone)
	NotStored = RunKind(tagMissing)
)

// Run names a run of a checkpoint. Runs of one kind stand from the newest, with Age 0, to the
// oldest.
type Run struct {
	Kind RunKind
	Age  uint32
	// Epoch is the one during which the run was written.
	Epoch, ID epoch.ID
	// Bytes is the length of its object, Hash its hash, and Records the number of its records.
	Bytes, Records uint64
	Hash           epoch.Hash
}

func (*Run) tag() byte { return tagRun }

func (r *Run) compare(o Record) int {
	p := o.(*Run)
	return cmp.Or(cmp.Compare(r.Kind, p.Kind), cmp.Compare(p.Age, r.Age))
}

func (r *Run) code(c *coder) {
	c.byte((*byte)(&r.Kind))
	c.refuse(!slices.Contains([]RunKind{Commits, Packs, GivenUp, NotStored}, r.Kind), "run of kind %d", r.Kind)
	number(c, &r.Age, "age of a run", 0, MaxRuns-1)
	c.ids(&r.Epoch, &r.ID)
	c.number(&r.Bytes, "length of a run", 1, math.MaxInt64)
	c.number(&r.Records, "number of records", 1, r.Bytes)
	c.fixed(r.Hash[:])
	c.refuse(r.Hash == (epoch.Hash{}), "run without a hash")
}

// Place is the place of a difference: Stored bytes from Offset in the stream of a pack, which give
// Bytes of plaintext.
type Place struct {
	Epoch, Pack           epoch.ID
	Offset, Stored, Bytes uint64
}

func (p *Place) code(c *coder) {
	c.ids(&p.Epoch, &p.Pack)
	p.within(c)
}

// within codes the place within the pack.
func (p *Place) within(c *coder) {
	c.number(&p.Offset, "offset in a pack", 0, math.MaxInt64)
	c.number(&p.Stored, "length in a pack", 1, math.MaxInt64-p.Offset)
	c.number(&p.Bytes, "length of a difference", 1, math.MaxInt64)
}

// Diff is the difference between two trees: as inline changes, or by place. It is empty if it has
// neither, as when both trees are equal.
type Diff struct {
	Inline []byte
	Place  *Place
}

// code codes a difference; the record says whether it has a place.
func (f *Diff) code(c *coder, placed bool) {
	if !placed {
		c.sized(&f.Inline, "length of a difference", 0, MaxInlineDiff)
		return
	}
	c.refuse(len(f.Inline) > 0, "a difference stands in two places")
	if c.reading {
		f.Place = new(Place)
	}
	f.Place.code(c)
}

// Snapshot is a step to the trees of the heads. It leads from the tree of an earlier snapshot, or
// from the empty tree if From is zero, to the tree To.
type Snapshot struct {
	Order    uint32 // ascending from 0 on
	From, To object.Digest
	Diff     Place
	Values   uint64 // keys that get a value, for display
	Whole    uint64 // approximate length of a difference from the empty tree to To
}

func (*Snapshot) tag() byte              { return tagSnapshot }
func (r *Snapshot) compare(o Record) int { return cmp.Compare(r.Order, o.(*Snapshot).Order) }

func (r *Snapshot) code(c *coder) {
	number(c, &r.Order, "order of a snapshot", 0, math.MaxUint32)
	c.digest(&r.From)
	c.digest(&r.To)
	c.refuse(r.From == r.To, "a snapshot leads from a tree to itself")
	c.refuse(!isNode(r.To) || !r.From.IsZero() && !isNode(r.From), "a snapshot leads to what is no tree")
	r.Diff.code(c)
	c.number(&r.Values, "number of values", 0, maxDisplay)
	c.number(&r.Whole, "length of a page", 0, maxDisplay)
}

// Gone is a given-up commit.
type Gone struct{ Commit epoch.Commit }

func (*Gone) tag() byte              { return tagGone }
func (r *Gone) compare(o Record) int { return cmp.Compare(r.Commit, o.(*Gone).Commit) }

func (r *Gone) code(c *coder) {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.Commit))
	if c.fixed(b); c.reading {
		r.Commit = epoch.Commit(binary.BigEndian.Uint64(b))
	}
	c.refuse(r.Commit == 0, "a given-up commit is zero")
}

// Pack announces a pack in a body, and names one in a run.
type Pack struct {
	// Epoch is the one in whose directory the pack is.
	Epoch, ID epoch.ID
	// Bytes is the length of the object, and Pieces its number of pieces. An object with a
	// difference has none, and is named only in a run.
	Bytes  uint64
	Pieces uint32
	// Eager says that the pack has pieces of EAGER values.
	Eager bool
	// Since is, in a run, when a pack that no commit needs was announced; else 0.
	Since epoch.Time
	// Dropped says, in a run, that the pack is no longer named.
	Dropped bool
}

// The flags of a Pack.
const (
	packEager   = 1 << 0
	packSince   = 1 << 1
	packDropped = 1 << 3
)

func (*Pack) tag() byte { return tagPack }

func (r *Pack) compare(o Record) int {
	p := o.(*Pack)
	return cmp.Or(bytes.Compare(r.Epoch[:], p.Epoch[:]), bytes.Compare(r.ID[:], p.ID[:]))
}

func (r *Pack) code(c *coder) {
	c.ids(&r.Epoch, &r.ID)
	c.number(&r.Bytes, "length of a pack", 1, MaxPackBytes)
	number(c, &r.Pieces, "number of pieces", 0, MaxPackPieces)
	flags := bit(r.Eager, packEager) | bit(r.Since != 0, packSince) | bit(r.Dropped, packDropped)
	c.flags(&flags, packEager|packSince|packDropped)
	if c.reading {
		r.Eager, r.Dropped = flags&packEager != 0, flags&packDropped != 0
	}
	if flags&packSince != 0 {
		number(c, &r.Since, "when a pack was announced", 1, math.MaxInt64)
	}
	c.refuse(r.Dropped && r.Since != 0, "a pack that is not named any more is needed")
}

// Piece is a piece of a value in a body.
type Piece struct {
	// Digest is computed by a reader. A writer uses the kind in it, and trusts the rest.
	Digest  object.Digest
	Content []byte
	// At is the offset of Content in the stream. Writer and Reader set it.
	At uint64
}

func (*Piece) tag() byte              { return tagPiece }
func (r *Piece) compare(o Record) int { return r.Digest.Compare(o.(*Piece).Digest) }

func (r *Piece) code(c *coder) {
	kind := byte(r.Digest.Kind())
	c.byte(&kind)
	c.rest(&r.Content)
	if c.reading && c.err == nil && isValue(object.Digest{kind, 1}) {
		r.Digest = object.Sum(object.Kind(kind), r.Content)
	}
	c.refuse(len(r.Content) == 0 || len(r.Content) > limits.MaxPieceBytes || !isValue(r.Digest), "piece of %d bytes, kind %d", len(r.Content), kind)
}

// Missing is a piece that a commit needs and that no device has sent.
type Missing struct{ Piece object.Digest }

func (*Missing) tag() byte              { return tagMissing }
func (r *Missing) compare(o Record) int { return r.Piece.Compare(o.(*Missing).Piece) }

func (r *Missing) code(c *coder) {
	c.digest(&r.Piece)
	c.refuse(!isValue(r.Piece), "missing piece is none of a value")
}

// Commit is a commit with the difference that leads to its tree.
type Commit struct {
	Commit *commit.Commit
	// Near are its nearest kept ancestors if a parent was given up; else nil.
	Near epoch.Set
	// Base is the commit from whose tree Diff leads, zero for the empty tree.
	Base commit.ID
	Diff Diff
	// Treeless says that no device can tell the tree of the commit any more: Base is zero and Diff
	// empty.
	Treeless bool
	// Sender is, in a run, the device that put the commit into the log, zero if unknown. For a
	// commit in a body it is the author of the entry.
	Sender seal.ID
}

// The flags of a Commit: two bits for the base, then others. The last three refer to the commit
// before it in the stream, so that such repetition needs no compression of several commits
// together.
const (
	baseEmpty  = iota
	baseFirst  // the first parent
	baseSecond // the second one
	baseOther

	baseBits       = 3
	commitNear     = 1 << 2
	commitPlaced   = 1 << 3
	commitTreeless = 1 << 4
	commitSender   = 1 << 5 // differs from that of the commit before
	commitFollows  = 1 << 6 // its only parent is the commit before
	commitBeside   = 1 << 7 // its difference is in the pack of the commit before's
)

func (*Commit) tag() byte { return tagCommit }

// compare orders commits by their generation, so that parents stand before their children.
func (r *Commit) compare(o Record) int {
	a, b := r.Commit, o.(*Commit).Commit
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), a.ID.Compare(b.ID))
}

func (r *Commit) code(c *coder) {
	if !c.reading && (r.Commit == nil || r.Commit.IsFirst()) {
		c.failf("the first commit of a page is implied")
		return
	}
	before := c.before
	if before == nil {
		before = &Commit{Commit: commit.First()}
	}
	var flags byte
	if !c.reading {
		flags = r.flags(before)
	}
	c.byte(&flags)
	r.codeCommit(c, before.Commit, flags&commitFollows != 0)
	r.codeBase(c, flags&baseBits)
	if flags&commitNear != 0 {
		if c.commits(&r.Near, 0, MaxNear); c.reading && r.Near == nil {
			r.Near = epoch.Set{}
		}
	}
	if flags&commitSender != 0 {
		c.fixed(r.Sender[:])
	} else if c.reading {
		r.Sender = before.Sender
	}
	if c.reading {
		r.Treeless = flags&commitTreeless != 0
	}
	if flags&commitBeside == 0 {
		r.Diff.code(c, flags&commitPlaced != 0)
	} else if beside := before.Diff.Place; beside == nil {
		c.failf("a difference is beside none")
	} else {
		if c.reading {
			r.Diff.Place = &Place{Epoch: beside.Epoch, Pack: beside.Pack}
		}
		r.Diff.Place.within(c)
	}
	switch {
	case c.err != nil:
	case r.Base == r.Commit.ID:
		c.failf("a difference leads from a commit to itself")
	case r.Treeless && (!r.Base.IsZero() || r.Diff.Place != nil || len(r.Diff.Inline) > 0):
		c.failf("a commit without a tree has a difference")
	case r.Diff.Place != nil && len(r.Diff.Inline) > 0:
		c.failf("a difference stands in two places")
	case flags != r.flags(before):
		c.failf("flags %#02x of a commit, not %#02x", flags, r.flags(before))
	}
}

// codeCommit codes the fields from which the id of the commit follows.
func (r *Commit) codeCommit(c *coder, before *commit.Commit, follows bool) {
	var m commit.Commit
	if !c.reading {
		m = *r.Commit
	}
	device, message := []byte(m.Device), []byte(m.Message)
	number(c, &m.Timestamp, "timestamp", 0, limits.MaxTimestamp)
	c.number(&m.Generation, "generation", 1, math.MaxUint64)
	c.digest(&m.Root)
	if follows {
		m.Parents = []commit.ID{before.ID}
	} else {
		n := uint64(len(m.Parents))
		if c.number(&n, "number of parents", 1, 2); c.reading {
			m.Parents = make([]commit.ID, n)
		}
		for i := range m.Parents {
			c.commitID(&m.Parents[i])
		}
	}
	c.sized(&device, "length of the name of a device", 0, limits.MaxDeviceBytes)
	if c.sized(&message, "length of a message", 0, limits.MaxMessageBytes); !c.reading || c.err != nil {
		return
	}
	m.Device, m.Message = string(device), string(message)
	var err error
	if r.Commit, err = commit.Of(&m); err != nil {
		c.failf("%w", err)
	}
}

// codeBase codes a base of the given sort.
func (r *Commit) codeBase(c *coder, of byte) {
	switch {
	case of == baseOther:
		c.commitID(&r.Base)
	case !c.reading || c.err != nil || of == baseEmpty:
	case int(of) > len(r.Commit.Parents):
		c.failf("parent %d of a commit with %d", of, len(r.Commit.Parents))
	default:
		r.Base = r.Commit.Parents[of-1]
	}
}

// base returns how the base is encoded.
func (r *Commit) base() byte {
	if r.Base.IsZero() {
		return baseEmpty
	}
	if i := slices.Index(r.Commit.Parents, r.Base); i >= 0 {
		return byte(baseFirst + i)
	}
	return baseOther
}

// flags returns the flags of a commit that follows another one.
func (r *Commit) flags(before *Commit) byte {
	at, beside := r.Diff.Place, before.Diff.Place
	return r.base() | bit(r.Near != nil, commitNear) | bit(at != nil, commitPlaced) | bit(r.Treeless, commitTreeless) |
		bit(r.Sender != before.Sender, commitSender) |
		bit(slices.Equal(r.Commit.Parents, []commit.ID{before.Commit.ID}), commitFollows) |
		bit(at != nil && beside != nil && at.Epoch == beside.Epoch && at.Pack == beside.Pack, commitBeside)
}

// Explanation is the tree of decisions of the merge before it, as a difference from the empty tree.
type Explanation struct {
	Root object.Digest
	Diff Diff
}

func (*Explanation) tag() byte          { return tagExplanation }
func (*Explanation) compare(Record) int { return 0 }

func (r *Explanation) code(c *coder) {
	placed := bit(r.Diff.Place != nil, 1)
	c.flags(&placed, 1)
	c.digest(&r.Root)
	r.Diff.code(c, placed != 0)
	c.refuse(!isNode(r.Root) || r.Root == commit.First().Root || r.Diff.Place == nil && len(r.Diff.Inline) == 0, "an explanation is empty, or no tree")
}

// Tag names a commit. Commit is zero for a removed name, which a checkpoint does not have.
type Tag struct {
	Name   string
	Commit commit.ID
}

func (*Tag) tag() byte              { return tagTag }
func (r *Tag) compare(o Record) int { return cmp.Compare(r.Name, o.(*Tag).Name) }

func (r *Tag) code(c *coder) {
	c.fixed(r.Commit[:])
	name := []byte(r.Name)
	if c.rest(&name); c.reading {
		r.Name = string(name)
	}
	c.refuse(r.Name == "" || len(r.Name) > limits.MaxTagBytes || !utf8.ValidString(r.Name),
		"name of a tag of %d bytes is no UTF-8 of 1 to %d", len(r.Name), limits.MaxTagBytes)
}

// Retention says which history a cut keeps. The zero value keeps all.
type Retention epoch.Retention

func (*Retention) tag() byte          { return tagRetention }
func (*Retention) compare(Record) int { return 0 }

func (r *Retention) code(c *coder) {
	c.number(&r.Last, "number of commits to keep", 0, math.MaxInt64)
	number(c, &r.Within, "age of commits to keep", 0, math.MaxInt64)
}

func isNode(d object.Digest) bool  { return d.Valid() && !d.IsZero() && d.Kind().IsNode() }
func isValue(d object.Digest) bool { return d.Valid() && !d.IsZero() && !d.Kind().IsNode() }
