package format

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Bounds. Those of what is stored are kept by readers; those at which a writer ends a pack or a
// block, or leaves something out of a body, are aims.
const (
	MaxBodyBytes       = 8 << 20   // plaintext of a body; writers aim at 4 MiB
	MaxEntryBytes      = 9 << 20   // a whole entry as stored
	MaxRangeBytes      = 24 << 20  // a range as stored: the longest one has 32 768 entries
	InlineBytes        = 1 << 20   // pieces of an entry in all, and a diff, that stand in the body
	PackBytes          = 16 << 20  // stream of a pack: blocks, table and all
	BlockBytes         = 128 << 10 // plaintext at which a block of a pack ends
	RunBytes           = 9 << 17   // plaintext of the blocks that stay together in a pack; a range of 1 MiB touches two runs
	MaxPackObjectBytes = 64 << 20  // a pack as stored
	MaxBodyPieces      = 16 << 10  // pieces in one body
	MaxBodyTags        = 16 << 10  // changes of tags in one body
	MaxGivenUp         = 16 << 10  // commits that one body gives up
)

// MaxDiffBytes bounds the plaintext of one diff.
const MaxDiffBytes = 1 << 50

// Base says from which tree a diff leads: that of a commit, or, with Empty, the empty tree.
type Base struct {
	Empty  bool
	Commit commit.ID
}

// Diff is a list of changes: Inline, as ChangeWriter writes them, or, when Pack is not zero, the
// framed object of that id in packs/ with role "diff" and Bytes of plaintext. An empty diff is
// inline. Bytes is 0 for an inline one.
type Diff struct {
	Inline []byte
	Pack   ID
	Bytes  uint64
}

// CommitChange is a commit with what leads to its tree.
//
// Plain is for sealing alone: nothing of the commit is compressed. Otherwise commit and diff are
// compressed by themselves.
type CommitChange struct {
	Plain  bool
	Commit *commit.Commit
	Base   Base
	Diff   Diff
	// Past says that what was built on the commit is in the log, or was given up: the commit is no
	// head, though nobody may see its children.
	Past bool
}

// Explanation is the tree of decisions of a merge commit of the same body, as diff from the empty
// tree. It is not empty.
type Explanation struct {
	Merge commit.ID
	Root  object.Digest
	Diff  Diff
}

// InlinePiece is a piece of a value that stands in the entry. Plain and Apart are for sealing
// alone: a piece that is Plain is not compressed, and one that is Apart not together with the ones
// before it.
type InlinePiece struct {
	Digest  object.Digest // decoding computes and sets it from the kind byte and content; encoding takes the kind from it
	Content []byte
	Plain   bool
	Apart   bool
}

// PackRef announces a pack.
type PackRef struct {
	ID     ID
	Bytes  uint64 // of the object
	Pieces uint32
	Eager  bool // holds pieces of EAGER values
}

// TagChange is a change of a tag.
type TagChange struct {
	Name    string
	Commit  commit.ID
	Removed bool
}

// Retention says what history the bucket keeps. The zero value keeps all.
type Retention struct {
	Commits uint64        // the last so many; 0: all
	Age     time.Duration // younger than that by the bucket's clock; 0: all
}

// Condemnation names what is to be deleted after the grace.
type Condemnation struct {
	Packs       []ID // also diffs that are objects of their own
	Checkpoints []uint64
	// Below condemns all entries and ranges that hold only numbers less than it; 0: none.
	Below uint64
}

// Body is what an entry brings. The lists from Packs to Tags, the explanations, and those in a
// condemnation are sets: Encode sorts them in place.
type Body struct {
	Device       ID             // fingerprint of the device that made it
	Commits      []CommitChange // parents before children
	Explanations []Explanation
	Pieces       []InlinePiece
	Packs        []PackRef // announced here
	// Relies are packs announced by earlier entries, and numbers of entries, that hold pieces which
	// the diffs bring.
	Relies        []ID
	ReliesEntries []uint64
	Tags          []TagChange
	Retention     *Retention
	Condemned     *Condemnation
	// Since is the number of the entry at which those bases of diffs that are not in the body were
	// heads of the log; 0: there are none. The entry relies on that state of the log, and so on the
	// checkpoint or the entries that give it.
	Since uint64
	// Shallow says that parents of the commits may have been given up, so that who reads it need
	// not have them.
	Shallow bool
	// Lacks says that values of the commits may have pieces that nobody has sent: the page was
	// uploaded anew by devices that had not all of them.
	Lacks bool
	// Renewed says that the log begins anew here, behind entries that are missing or damaged: the
	// checkpoint of this entry's number stands for all that the bucket has of the log before. What
	// somebody has read there that is not in it, he sends again.
	Renewed bool
	// GivenUp are commits that no device keeps from here on, whatever the retention says,
	// ascending.
	GivenUp []commit.ID
}

// Elsewhere returns about how many bytes who reads b reads besides its entry: diffs that are
// objects of their own, and packs with pieces of EAGER values.
func (b *Body) Elsewhere() (bytes uint64) {
	for i := range b.Commits {
		bytes += b.Commits[i].Diff.Bytes
	}
	for i := range b.Explanations {
		bytes += b.Explanations[i].Diff.Bytes
	}
	for i := range b.Packs {
		if b.Packs[i].Eager {
			bytes += b.Packs[i].Bytes
		}
	}
	return bytes
}

// check returns what is wrong with the values of b, whose lists are sorted. index says where each
// commit stands.
func (b *Body) check() (index map[commit.ID]int, err error) {
	if b.Device.IsZero() {
		return nil, errors.New("fingerprint of the device is zero")
	}
	if len(b.Commits)+len(b.Pieces)+len(b.Packs)+len(b.Tags) == 0 && b.Retention == nil && b.Condemned == nil && !b.Renewed && len(b.GivenUp) == 0 {
		return nil, errors.New("it changes nothing")
	}
	if index, err = b.checkCommits(); err != nil {
		return nil, err
	}
	last := -1
	for i := range b.Explanations {
		at, err := b.Explanations[i].check(b, index)
		if err != nil {
			return nil, fmt.Errorf("explanation of %s: %w", b.Explanations[i].Merge.Short(), err)
		}
		if at <= last {
			return nil, errors.New("explanations are not sorted, or one is there twice")
		}
		last = at
	}
	if err := b.checkObjects(); err != nil {
		return nil, err
	}
	if len(b.Tags) > MaxBodyTags {
		return nil, fmt.Errorf("%d tags, at most %d: %w", len(b.Tags), MaxBodyTags, base.ErrTooLarge)
	}
	return index, checkTags(b.Tags)
}

// checkCommits verifies the commits, their order and their diffs.
func (b *Body) checkCommits() (map[commit.ID]int, error) {
	index := make(map[commit.ID]int, len(b.Commits))
	for i := range b.Commits {
		c := b.Commits[i].Commit
		if c == nil || c.IsFirst() {
			return nil, errors.New("the first commit of a page is implied")
		}
		if _, ok := index[c.ID]; ok {
			return nil, fmt.Errorf("commit %s is there twice", c.ID.Short())
		}
		index[c.ID] = i
	}
	for i := range b.Commits {
		c := &b.Commits[i]
		for _, p := range c.Commit.Parents {
			if at, ok := index[p]; ok && at >= i {
				return nil, fmt.Errorf("commit %s stands before its parent", c.Commit.ID.Short())
			}
		}
		if at, ok := index[c.Base.Commit]; ok && at >= i {
			return nil, fmt.Errorf("commit %s does not stand behind the base of its diff", c.Commit.ID.Short())
		}
		if c.Base.Empty != c.Base.Commit.IsZero() {
			return nil, fmt.Errorf("base of the diff of commit %s: the empty tree %t, commit %s", c.Commit.ID.Short(), c.Base.Empty, c.Base.Commit.Short())
		}
		if err := c.Diff.check(c.Base.Empty); err != nil {
			return nil, fmt.Errorf("diff of commit %s: %w", c.Commit.ID.Short(), err)
		}
	}
	return index, nil
}

func (d *Diff) check(fromEmpty bool) error {
	if d.Pack.IsZero() {
		if d.Bytes != 0 {
			return errors.New("an inline diff has a length of its own")
		}
		return checkChanges(d.Inline, fromEmpty)
	}
	if len(d.Inline) > 0 || d.Bytes == 0 || d.Bytes > MaxDiffBytes {
		return fmt.Errorf("object of %d bytes, with %d inline", d.Bytes, len(d.Inline))
	}
	return nil
}

// check returns where the merge stands in the body.
func (e *Explanation) check(b *Body, index map[commit.ID]int) (int, error) {
	at, ok := index[e.Merge]
	switch {
	case !ok || len(b.Commits[at].Commit.Parents) != 2:
		return 0, errors.New("it is no merge of the same body")
	case !e.Root.Valid() || !e.Root.Kind().IsNode() || e.Root == commit.First().Root:
		return 0, fmt.Errorf("root %s is no node, or that of the empty tree", e.Root.Short())
	case e.Diff.Pack.IsZero() && len(e.Diff.Inline) == 0:
		return 0, errors.New("it is empty")
	}
	return at, e.Diff.check(true)
}

// checkObjects verifies packs, what the body relies on, and what it condemns.
func (b *Body) checkObjects() error {
	if err := checkPacks(b.Packs); err != nil {
		return err
	}
	if err := ascendingIDs("packs that it relies on", b.Relies); err != nil {
		return err
	}
	if err := ascendingNumbers("entries that it relies on", b.ReliesEntries); err != nil {
		return err
	}
	if b.Retention != nil && b.Retention.Age < 0 {
		return errors.New("retention has a negative age")
	}
	if len(b.GivenUp) > MaxGivenUp {
		return fmt.Errorf("%d commits are given up, at most %d: %w", len(b.GivenUp), MaxGivenUp, base.ErrTooLarge)
	}
	for i, id := range b.GivenUp {
		if id.IsZero() || id == commit.First().ID || i > 0 && b.GivenUp[i-1].Compare(id) >= 0 {
			return errors.New("commits that are given up are not sorted, one is there twice, or is none")
		}
	}
	if b.Since > MaxNumber || (b.Since > 0 || b.Shallow) && len(b.Commits) == 0 {
		return fmt.Errorf("%d commits on the log as of entry %d, shallow %t", len(b.Commits), b.Since, b.Shallow)
	}
	if b.Condemned != nil {
		if err := b.Condemned.check(); err != nil {
			return err
		}
	}
	return b.checkDistinct()
}

// checkDistinct verifies that no object is brought twice, or both used and condemned.
func (b *Body) checkDistinct() error {
	var ids []ID
	for i := range b.Packs {
		ids = append(ids, b.Packs[i].ID)
	}
	ids = append(ids, b.Relies...)
	for i := range b.Commits {
		ids = append(ids, b.Commits[i].Diff.Pack)
	}
	for i := range b.Explanations {
		ids = append(ids, b.Explanations[i].Diff.Pack)
	}
	if b.Condemned != nil {
		ids = append(ids, b.Condemned.Packs...)
		if len(b.ReliesEntries) > 0 && b.ReliesEntries[0] < b.Condemned.Below || b.Since > 0 && b.Since < b.Condemned.Below {
			return errors.New("it relies on an entry that it condemns")
		}
	}
	ids = slices.DeleteFunc(ids, ID.IsZero)
	slices.SortFunc(ids, compareIDs)
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] {
			return fmt.Errorf("object %s is there twice", ids[i])
		}
	}
	return nil
}

func checkPacks(packs []PackRef) error {
	for i := range packs {
		p := &packs[i]
		switch {
		case p.ID.IsZero():
			return errors.New("id of a pack is zero")
		case i > 0 && compareIDs(packs[i-1].ID, p.ID) >= 0:
			return errors.New("packs are not sorted, or one is there twice")
		case p.Bytes == 0 || p.Bytes > MaxPackObjectBytes:
			return fmt.Errorf("pack %s of %d bytes, not 1 to %d", p.ID, p.Bytes, MaxPackObjectBytes)
		case p.Pieces == 0 || p.Pieces > MaxPackPieces:
			return fmt.Errorf("pack %s of %d pieces, not 1 to %d", p.ID, p.Pieces, MaxPackPieces)
		}
	}
	return nil
}

func (c *Condemnation) check() error {
	if len(c.Packs)+len(c.Checkpoints) == 0 && c.Below == 0 {
		return errors.New("it condemns nothing")
	}
	if c.Below == 1 || c.Below > MaxNumber { // no entry has a number below 1
		return fmt.Errorf("it condemns what is below %d", c.Below)
	}
	if err := ascendingIDs("condemned packs", c.Packs); err != nil {
		return err
	}
	return ascendingNumbers("condemned checkpoints", c.Checkpoints)
}

func ascendingIDs(what string, ids []ID) error {
	for i, id := range ids {
		if id.IsZero() || i > 0 && compareIDs(ids[i-1], id) >= 0 {
			return fmt.Errorf("%s are not sorted, or one is there twice or zero", what)
		}
	}
	return nil
}

func ascendingNumbers(what string, numbers []uint64) error {
	for i, n := range numbers {
		if n == 0 || n > MaxNumber || i > 0 && numbers[i-1] >= n {
			return fmt.Errorf("%s are not sorted, or one is there twice or out of bounds", what)
		}
	}
	return nil
}

// sort brings the lists that are sets into order. Explanations of what is no commit of the body
// come first, for check to find.
func (b *Body) sort() {
	if len(b.Explanations) > 1 {
		index := make(map[commit.ID]int, len(b.Commits))
		for i := range b.Commits {
			if c := b.Commits[i].Commit; c != nil {
				index[c.ID] = i + 1
			}
		}
		slices.SortStableFunc(b.Explanations, func(x, y Explanation) int { return index[x.Merge] - index[y.Merge] })
	}
	sortPacks(b.Packs)
	slices.SortFunc(b.Relies, compareIDs)
	slices.Sort(b.ReliesEntries)
	slices.SortFunc(b.GivenUp, commit.ID.Compare)
	sortTags(b.Tags)
	if b.Condemned != nil {
		b.Condemned.sort()
	}
}

func (c *Condemnation) sort() {
	slices.SortFunc(c.Packs, compareIDs)
	slices.Sort(c.Checkpoints)
}

func (b *Body) tooLarge(n int) error {
	return fmt.Errorf("encode %s of %d bytes, at most %d: %w", bodyWhere, n, MaxBodyBytes, base.ErrTooLarge)
}
