package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// Checkpoint is what a new device begins with. As an object it is framed, with CheckpointLabel:
// first what EncodeTo writes, then the diffs of heads and trees, of the lengths that DiffBytes and
// TreeBytes say, and nothing between or behind them.
type Checkpoint struct {
	// At is the position that it stands for: everything up to entry At.Number is in it.
	At Position
	// Commits are all commits that the bucket keeps, parents before children; parents that are not
	// there were given up. Those that are not among Heads and Trees come without trees.
	Commits []*commit.Commit
	// Heads are indices into Commits: of commits that are nobody's parent. The first one's diff
	// leads from the empty tree, those of the others from the first one's tree. There are none if
	// and only if there are no commits.
	Heads     []uint32
	DiffBytes []uint64 // of each head's diff
	// Trees are indices, ascending, of commits that are no heads, and whose trees the log does not
	// give any more; their diffs lead from the first head's tree, too.
	Trees     []uint32
	TreeBytes []uint64 // of each of their diffs
	Tags      []TagChange
	Retention Retention
	// Packs hold all live pieces of values of Heads and Trees, whose places in entries are thus not
	// needed.
	Packs []PackRef
	// Partial are those of Packs of which not all blocks are live.
	Partial []PartialPack
	// Condemned is what is condemned and still there, oldest first.
	Condemned []Condemnation
	// Lacks says that there may be values with pieces that nobody has sent.
	Lacks bool
}

// MaxCondemnations bounds those of a checkpoint; who has more joins some.
const MaxCondemnations = 4096

// The layout of a checkpoint's plaintext:
//
//	offset  bytes  content
//	0       1      format version: 1
//	1       8      length h of the header
//	9       h      header
//	9+h            diffs of the heads, then those of the trees
//
// and of its header:
//
//	bytes   content
//	56      position: bucket id (16), number (8, not 0), hash of that entry (32)
//	        number of commits (uvarint); for each: length (uvarint) and commit
//	        number of heads (uvarint); for each: which commit (uvarint), length of its diff
//	               (uvarint)
//	        tags, none removed; retention; packs
//	        number of condemnations (uvarint), condemnations
//	        flags (1), unless they are 0: bit 0, values may have pieces that nobody has sent; bit
//	              1, trees follow; bit 2, partial packs follow
//	        number of trees (uvarint, not 0); for each: which commit (uvarint), length of its diff
//	               (uvarint)
//	        partial packs
const (
	checkpointPrefix = 1 + 8
	checkpointWhere  = "checkpoint"
	checkpointLacks  = 1 << 0
	checkpointTrees  = 1 << 1
	checkpointParts  = 1 << 2

	// maxCommitBytes is more than the longest commit has.
	maxCommitBytes = 20 << 10

	// maxTailBytes bounds what stands behind the commits, which is read as a whole: it may be
	// compressed to almost nothing.
	maxTailBytes = 32 << 20
)

// EncodeTo writes version, length and header to w; the diffs of the trees are to follow. It sorts
// the lists that are sets. Errors: base.ErrInvalid, those of w.
func (c *Checkpoint) EncodeTo(w io.Writer) error {
	return c.StreamTo(w, func(take func(*commit.Commit) error) error {
		for _, k := range c.Commits {
			if err := take(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// StreamTo is EncodeTo for commits that each gives to take, one by one, the same ones each time
// that it is called, which is twice. It holds what History holds of them, and returns the error of
// each.
func (c *Checkpoint) StreamTo(w io.Writer, each func(take func(*commit.Commit) error) error) error {
	sortTags(c.Tags)
	sortPacks(c.Packs)
	slices.SortFunc(c.Partial, func(a, b PartialPack) int { return compareIDs(a.ID, b.ID) })
	for i := range c.Condemned {
		c.Condemned[i].sort()
	}
	h, length := &History{}, 0
	var scratch []byte
	err := each(func(k *commit.Commit) error {
		if k == nil {
			return invalid(checkpointWhere, errors.New("a commit is nil"))
		}
		if err := h.add(k); err != nil {
			return invalid(checkpointWhere, err)
		}
		scratch = binary.AppendUvarint(scratch[:0], uint64(len(k.Encode())))
		length += len(scratch) + len(k.Encode())
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.check(h); err != nil {
		return invalid(checkpointWhere, err)
	}
	head := binary.AppendUvarint(c.At.append(nil), uint64(h.Len()))
	tail := c.tail()
	if len(tail) > maxTailBytes {
		return invalid(checkpointWhere, fmt.Errorf("%d bytes of tags and packs, at most %d: %w", len(tail), maxTailBytes, base.ErrTooLarge))
	}
	length += len(head) + len(tail)
	b := append(binary.BigEndian.AppendUint64([]byte{formatVersion}, uint64(length)), head...)
	err = each(func(k *commit.Commit) error {
		if b = appendLengthAndBytes(b, k.Encode()); len(b) < windowBytes {
			return nil
		}
		err := writeAll(w, b)
		b = b[:0]
		return err
	})
	if err != nil {
		return err
	}
	return writeAll(w, append(b, tail...))
}

func writeAll(w io.Writer, b []byte) error {
	n, err := w.Write(b)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

func appendTrees(b []byte, which []uint32, bytes []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(which)))
	for i, k := range which {
		b = binary.AppendUvarint(b, uint64(k))
		b = binary.AppendUvarint(b, bytes[i])
	}
	return b
}

// tail returns the header from the heads on.
func (c *Checkpoint) tail() []byte {
	b := appendTrees(nil, c.Heads, c.DiffBytes)
	b = appendTags(b, c.Tags)
	b = appendRetention(b, c.Retention)
	b = appendPacks(b, c.Packs)
	b = binary.AppendUvarint(b, uint64(len(c.Condemned)))
	for i := range c.Condemned {
		b = appendCondemnation(b, &c.Condemned[i])
	}
	flags := byte(0)
	if c.Lacks {
		flags |= checkpointLacks
	}
	if len(c.Trees) > 0 {
		flags |= checkpointTrees
	}
	if len(c.Partial) > 0 {
		flags |= checkpointParts
	}
	if flags == 0 {
		return b
	}
	b = append(b, flags)
	if len(c.Trees) > 0 {
		b = appendTrees(b, c.Trees, c.TreeBytes)
	}
	if len(c.Partial) > 0 {
		b = appendPartial(b, c.Partial)
	}
	return b
}

// check returns what is wrong with the values of c, whose lists are sorted, and whose commits are
// in h.
func (c *Checkpoint) check(h *History) error {
	if err := c.At.check(); err != nil {
		return err
	}
	if c.At.Number == 0 {
		return errors.New("it stands for no entry")
	}
	if err := c.checkTrees(h); err != nil {
		return err
	}
	if err := checkTags(c.Tags); err != nil {
		return err
	}
	if slices.ContainsFunc(c.Tags, func(t TagChange) bool { return t.Removed }) {
		return errors.New("it has a removed tag")
	}
	if c.Retention.Age < 0 {
		return errors.New("retention has a negative age")
	}
	if err := checkPacks(c.Packs); err != nil {
		return err
	}
	if err := checkPartial(c.Partial, c.Packs); err != nil {
		return err
	}
	if len(c.Condemned) > MaxCondemnations {
		return fmt.Errorf("%d condemnations, at most %d: %w", len(c.Condemned), MaxCondemnations, base.ErrTooLarge)
	}
	for i := range c.Condemned {
		k := &c.Condemned[i]
		if err := k.check(); err != nil {
			return err
		}
		if k.reach() > c.At.Number {
			return errors.New("it says that something later is condemned")
		}
		for _, id := range k.Packs {
			if _, ok := slices.BinarySearchFunc(c.Packs, id, func(p PackRef, id ID) int { return compareIDs(p.ID, id) }); ok {
				return fmt.Errorf("pack %s is used and condemned", id)
			}
		}
	}
	return nil
}

// reach returns the least number of an entry that can condemn c, since it condemns nothing but what
// is before it.
func (c *Condemnation) reach() uint64 {
	n := c.Below
	if k := len(c.Checkpoints); k > 0 {
		n = max(n, c.Checkpoints[k-1]+1)
	}
	return n
}

// checkTrees verifies which of the commits are heads, and which others have trees.
func (c *Checkpoint) checkTrees(h *History) error {
	commits := h.Len()
	if (commits == 0) != (len(c.Heads) == 0) || len(c.Heads) != len(c.DiffBytes) || len(c.Trees) != len(c.TreeBytes) {
		return fmt.Errorf("%d heads, %d diffs, %d commits", len(c.Heads), len(c.DiffBytes), commits)
	}
	isParent, isTaken := h.IsParent(), make([]bool, commits)
	var total uint64
	taken := func(k uint32, bytes uint64) error {
		if int64(k) >= int64(commits) || isTaken[k] {
			return fmt.Errorf("commit %d of %d has a tree twice", k, commits)
		}
		isTaken[k] = true
		if bytes > MaxDiffBytes-total {
			return fmt.Errorf("diffs of more than %d bytes", int64(MaxDiffBytes))
		}
		total += bytes
		return nil
	}
	for i, k := range c.Heads {
		if int64(k) < int64(commits) && isParent[k] {
			return fmt.Errorf("commit %d of %d is no head", k, commits)
		}
		if err := taken(k, c.DiffBytes[i]); err != nil {
			return err
		}
	}
	for i, k := range c.Trees {
		if i > 0 && k <= c.Trees[i-1] {
			return errors.New("trees are not sorted")
		}
		if err := taken(k, c.TreeBytes[i]); err != nil {
			return err
		}
	}
	return nil
}

// CheckAt verifies that the checkpoint is of this bucket and stands for everything up to entry
// number, as its name says. Errors: *base.CorruptError.
func (c *Checkpoint) CheckAt(bucket ID, number uint64) error {
	if c.At.Bucket != bucket || c.At.Number != number {
		return corrupt(checkpointWhere, fmt.Errorf("it is that of entry %d of bucket %s, want %d of %s", c.At.Number, c.At.Bucket, number, bucket))
	}
	return nil
}

// ReadCheckpoint reads what EncodeTo wrote from r, and nothing more, so that the diffs come next.
// Its header is at most limit bytes long; besides what it returns it holds no commit. Errors:
// *base.CorruptError, *base.FormatError, those of r.
func ReadCheckpoint(r io.Reader, limit int64) (*Checkpoint, error) {
	var commits []*commit.Commit
	c, _, err := StreamCheckpoint(r, limit, func(k *commit.Commit) error {
		commits = append(commits, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.Commits = commits
	return c, nil
}

// StreamCheckpoint is ReadCheckpoint that gives the commits to take, one by one in their order, and
// returns a checkpoint without them, and what there is to know of all of them. Whether they are as
// they should be is known when it has returned. It returns the error of take.
func StreamCheckpoint(r io.Reader, limit int64, take func(*commit.Commit) error) (*Checkpoint, *History, error) {
	var prefix [checkpointPrefix]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, nil, readError(checkpointWhere, early(err))
	}
	if err := checkVersion(checkpointWhere, prefix[0]); err != nil {
		return nil, nil, err
	}
	length := binary.BigEndian.Uint64(prefix[1:])
	if length > uint64(max(limit, 0)) {
		return nil, nil, corrupt(checkpointWhere, fmt.Errorf("header of %d bytes, at most %d", length, limit))
	}
	w := &window{r: r, more: int64(length)}
	c, h := &Checkpoint{}, &History{}
	if err := c.readCommits(w, h, take); err != nil {
		return nil, nil, err
	}
	if w.left() > maxTailBytes {
		return nil, nil, corrupt(checkpointWhere, fmt.Errorf("%d bytes behind its commits, at most %d", w.left(), maxTailBytes))
	}
	rest, err := io.ReadAll(io.MultiReader(bytes.NewReader(w.rest()), io.LimitReader(r, w.more)))
	if err == nil && int64(len(rest)) != w.left() {
		err = errEarly
	}
	if err != nil {
		return nil, nil, readError(checkpointWhere, err)
	}
	if err := c.parseTail(rest, h.Len()); err != nil {
		return nil, nil, err
	}
	if err := c.check(h); err != nil {
		return nil, nil, corrupt(checkpointWhere, err)
	}
	return c, h, nil
}

// readCommits reads position and commits, which it gives to take, and leaves w before the heads.
func (c *Checkpoint) readCommits(w *window, h *History, take func(*commit.Commit) error) error {
	if err := w.fill(positionBytes + binary.MaxVarintLen64); err != nil {
		return readError(checkpointWhere, err)
	}
	d := &decoder{where: checkpointWhere, b: w.rest()}
	c.At = d.position()
	n := d.uvarint("number of commits", 0, math.MaxUint32)
	w.at += d.at
	if n > uint64(w.left()/leastCommit) {
		d.failf("%d commits in %d bytes", n, w.left())
	}
	if d.err != nil {
		return d.err
	}
	for i := range n {
		if err := w.fill(binary.MaxVarintLen64 + maxCommitBytes); err != nil {
			return readError(checkpointWhere, err)
		}
		d := &decoder{where: checkpointWhere, b: w.rest()}
		encoded := d.lengthAndBytes("a commit", leastCommit, maxCommitBytes)
		if d.err != nil {
			return d.err
		}
		k, err := commit.Parse(encoded)
		if err != nil {
			return corrupt(checkpointWhere, fmt.Errorf("commit %d: %w", i, err))
		}
		if err := h.add(k); err != nil {
			return corrupt(checkpointWhere, err)
		}
		if err := take(k); err != nil {
			return err
		}
		w.at += d.at
	}
	return nil
}

// parseTail reads the header from the heads on.
func (c *Checkpoint) parseTail(b []byte, commits int) error {
	d := &decoder{where: checkpointWhere, b: b}
	c.Heads, c.DiffBytes = d.trees("heads", 0, commits)
	c.Tags = d.tags(0, leastHeldTag, math.MaxInt)
	c.Retention = d.retention()
	c.Packs = d.packs(0)
	n := d.count("condemnations", 0, 1+1+1)
	if n > MaxCondemnations {
		d.failf("%d condemnations, at most %d", n, MaxCondemnations)
	}
	for range n {
		c.Condemned = append(c.Condemned, d.condemnation())
		if d.err != nil {
			break
		}
	}
	if d.err == nil && len(d.b) > d.at {
		flags := d.flags(checkpointWhere, checkpointLacks|checkpointTrees|checkpointParts)
		if flags == 0 {
			d.failf("flags 0")
		}
		c.Lacks = flags&checkpointLacks != 0
		if flags&checkpointTrees != 0 {
			c.Trees, c.TreeBytes = d.trees("trees", 1, commits)
		}
		if d.err == nil && flags&checkpointParts != 0 {
			c.Partial = d.partial()
		}
	}
	return d.end()
}

// trees reads which commits have trees, and the lengths of their diffs.
func (d *decoder) trees(what string, least uint64, most int) (which []uint32, bytes []uint64) {
	n := d.count(what, least, 1+1)
	if n > most {
		d.failf("%d %s of %d commits", n, what, most)
	}
	for range n {
		if d.err != nil {
			return nil, nil
		}
		which = append(which, uint32(d.uvarint("which commit", 0, math.MaxUint32)))
		bytes = append(bytes, d.uvarint("length of a diff", 0, MaxDiffBytes))
	}
	return which, bytes
}
