package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// threeWay merges the two sides of m key by key and returns the root of the result.
func (s *pass) threeWay(ctx context.Context, m *Merged, r *Relation) (object.Digest, error) {
	v := virtuals{pass: s, memo: map[[2]commit.ID]version{}, left: maxVirtualMerges}
	b, err := v.of(ctx, r.Bases, 0)
	if err != nil {
		return object.Digest{}, fmt.Errorf("merge %d bases: %w", len(r.Bases), err)
	}
	p := &Pair{
		Left: m.Left, Right: m.Right, Bases: r.Bases,
		Base: b.tree, Unknown: b.unknown, LeftTree: s.env.Tree(m.Left), RightTree: s.env.Tree(m.Right),
		env: s.env, clockBack: r.ClockBack, rules: s.rules, owner: noOwner,
	}
	if !s.rules.asksAll && b.unknown.Root == btree.EmptyRoot {
		switch b.tree.Root {
		case m.Left.Root:
			return m.Right.Root, nil
		case m.Right.Root:
			return m.Left.Root, nil
		}
	}
	j := newJoiner(p, s.rules, btree.Tree{Page: s.env.Page, Root: btree.EmptyRoot})
	root, err := p.LeftTree.Apply(ctx, s.env.Sink, j.changes(ctx))
	if err != nil || j.noted == 0 {
		return root, err
	}
	m.Conflicts = j.noted
	if m.Explanation, err = j.notes.Finish(ctx); err != nil {
		return object.Digest{}, fmt.Errorf("record decisions: %w", err)
	}
	return root, nil
}

// joiner makes, in order of keys, the changes that turn the left tree of a pair into the merged
// one. Every range of keys is compared once: the same pass finds the conflicts.
type joiner struct {
	p      *Pair
	rules  *ruleSet
	window window
	owners map[int]*owned // by rule; what its owner has made for later ranges
	at     Conflict       // the key that is being judged
	// notes makes the tree of the decisions, or, for a virtual base, of the unknown keys. noted
	// counts the added entries.
	notes *btree.Writer
	noted int

	unknown keySet
	// base is set for a virtual base.
	base *baseJoin
}

// newJoiner returns a joiner whose notes are added to a tree.
func newJoiner(p *Pair, rules *ruleSet, notes btree.Tree) *joiner {
	return &joiner{
		p: p, rules: rules, unknown: newKeySet(p.Unknown), notes: notes.Writer(p.env.Sink),
		window: window{asked: make([][]Conflict, len(rules.rules))}, owners: map[int]*owned{},
	}
}

// note adds a key with a short value to the notes. Keys ascend.
func (j *joiner) note(ctx context.Context, key, value []byte) error {
	j.noted++
	e := fb.Entry{Key: key, Inline: true, Value: value, Size: uint64(len(value))}
	if err := j.notes.Change(ctx, &btree.Change{Entry: e}); err != nil {
		return fmt.Errorf("note what is decided about key %s: %w", keyText(key), err)
	}
	return nil
}

// take is the yield function of changes.
type take func(btree.Change, error) bool

func (j *joiner) changes(ctx context.Context) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		ranges := j.rules.ranges
		for len(ranges) > 0 {
			n := 0
			for n < len(ranges) && !j.owned(&ranges[n]) {
				n++
			}
			ok := true
			if n > 0 {
				ok = j.stream(ctx, ranges[:n], yield)
			} else {
				n = 1
				ok = j.own(ctx, &ranges[0], yield)
			}
			if !ok {
				return
			}
			ranges = ranges[n:]
		}
	}
}

// owned reports whether an owner makes the changes of a range. No rule is asked for a base (I6).
func (j *joiner) owned(r *keyRange) bool { return j.base == nil && j.rules.owned(r) }

// stream makes the changes of adjoining ranges. It returns false after it has yielded an error, or
// when the caller stops.
func (j *joiner) stream(ctx context.Context, ranges []keyRange, yield take) bool {
	hi := ranges[len(ranges)-1].hi
	fail := func(err error) bool {
		yield(btree.Change{}, err)
		return false
	}
	for e, err := range btree.Diff3(ctx, j.p.Base, j.p.LeftTree, j.p.RightTree, ranges[0].lo) {
		if err != nil {
			return fail(fmt.Errorf("compare the trees with their base: %w", err))
		}
		if hi != nil && bytes.Compare(e.Key, hi) >= 0 {
			break
		}
		for ranges[0].behind(e.Key) {
			ranges = ranges[1:]
		}
		it, c, err := j.judge(ctx, &e, ranges[0].rule)
		if err != nil {
			return fail(err)
		}
		switch {
		case it.asked:
			j.window.ask(&it, c)
		case !it.changes && !it.lost:
		case j.window.questions > 0:
			j.window.keep(&it)
		default:
			if !j.pass(ctx, &it, yield) {
				return false
			}
		}
		if j.window.full() && !j.flush(ctx, yield) {
			return false
		}
	}
	return j.flush(ctx, yield)
}

// pass yields the change of an item, and notes its key if it is unknown.
func (j *joiner) pass(ctx context.Context, it *item, yield take) bool {
	if it.lost {
		if err := j.note(ctx, it.key, nil); err != nil {
			yield(btree.Change{}, err)
			return false
		}
	}
	return !it.changes || yield(it.change, nil)
}

// judge finds the outcome of a key without a rule, and whether to ask a rule about it.
func (j *joiner) judge(ctx context.Context, e *btree.Diff3Entry, rule int) (item, *Conflict, error) {
	c := &j.at
	*c = conflictOf(e)
	var err error
	if c.BaseUnknown, err = j.unknown.has(ctx, e.Key); err != nil {
		return item{}, nil, err
	}
	it := item{key: e.Key, rule: rule}
	if j.base != nil {
		lost, err := j.base.lost(ctx, e.Key)
		if err != nil {
			return item{}, nil, err
		}
		if lost {
			it.lose(c)
			return it, c, nil
		}
	}
	if it.plain, err = j.plain(ctx, c); err != nil {
		return item{}, nil, err
	}
	switch {
	case it.plain != Undecided && c.bothChanged() && asksEqual(j.rules.rules[rule].Decider):
		it.asked = true
	case j.base == nil:
		it.asked = it.plain == Undecided || j.rules.rules[rule].All
	case it.plain == Undecided:
		if _, it.asked = j.rules.rules[rule].Decider.(ByValue); !it.asked {
			it.lose(c)
			return it, c, nil
		}
	}
	if !it.asked {
		it.change, it.changes = c.toward(it.plain)
	}
	return it, c, nil
}

// plain returns the outcome of a key without any rule (I2): Undecided for a conflict.
func (j *joiner) plain(ctx context.Context, c *Conflict) (Outcome, error) {
	if o := c.withoutRule(); o != Undecided {
		return o, nil
	}
	// The same value cut by another table is no change.
	s := c.sides()
	equal, err := j.sameContent(ctx, c, s[1], s[2])
	switch {
	case err != nil:
		return Undecided, err
	case equal && c.Left.Digest.Compare(c.Right.Digest) < 0:
		return TakeLeft, nil
	case equal:
		return TakeRight, nil
	}
	for i, other := range [...]Outcome{TakeRight, TakeLeft} {
		if equal, err = j.sameContent(ctx, c, s[0], s[1+i]); err != nil || equal {
			return other, err
		}
	}
	return Undecided, nil
}

// withoutRule returns the outcome for a key that only one side has changed, or both alike; else
// Undecided. It reads no value.
func (c *Conflict) withoutRule() Outcome {
	s := c.sides()
	switch {
	case s[1].same(s[2]):
		return TakeLeft
	case c.BaseUnknown:
		return Undecided
	case s[1].same(s[0]):
		return TakeRight
	case s[2].same(s[0]):
		return TakeLeft
	}
	return Undecided
}

// side is the entry of a key in one version.
type side struct {
	entry *fb.Entry
	has   bool
}

func (s side) same(o side) bool { return SameEntry(s.entry, s.has, o.entry, o.has) }

// sides returns the entries of base, left and right.
func (c *Conflict) sides() [3]side {
	return [3]side{{&c.Base, c.HasBase}, {&c.Left, c.HasLeft}, {&c.Right, c.HasRight}}
}

// bothChanged reports whether both sides differ from a known base.
func (c *Conflict) bothChanged() bool {
	s := c.sides()
	return !c.BaseUnknown && !s[0].same(s[1]) && !s[0].same(s[2])
}

// SameEntry reports whether two entries of a key, where they exist, are equal.
func SameEntry(a *fb.Entry, hasA bool, b *fb.Entry, hasB bool) bool {
	return hasA == hasB && (!hasA || btree.EqualValues(a, b))
}

// mayBeCutOtherwise reports whether two different entries may have the same value, cut by different
// tables. A single piece has one digest in any table.
func mayBeCutOtherwise(a, b *fb.Entry) bool {
	return !a.Inline && !b.Inline && a.Size == b.Size && a.Priority == b.Priority && (a.Digest.Kind().IsIndex() || b.Digest.Kind().IsIndex())
}

// compareBytes is how much of two values is compared at once.
const compareBytes = 64 << 10

// sameContent reports whether two entries have one value that was cut by different tables. It reads
// the values up to the first difference. A value that was lost with the bucket equals no other one.
func (j *joiner) sameContent(ctx context.Context, c *Conflict, a, b side) (bool, error) {
	if !a.has || !b.has || !mayBeCutOtherwise(a.entry, b.entry) {
		return false, nil
	}
	equal, err := j.readAlike(ctx, a.entry, b.entry)
	if err != nil && !errors.Is(err, base.ErrGone) {
		return false, fmt.Errorf("compare the values of key %s: %w", keyText(c.Key), err)
	}
	return equal, nil
}

func (j *joiner) readAlike(ctx context.Context, a, b *fb.Entry) (bool, error) {
	r, s := j.p.Open(ctx, a), j.p.Open(ctx, b)
	buf := make([]byte, 2*compareBytes)
	for left := a.Size; left > 0; {
		n := min(left, compareBytes)
		x, y := buf[:n], buf[compareBytes:compareBytes+n]
		if _, err := io.ReadFull(r, x); err != nil {
			return false, err
		}
		if _, err := io.ReadFull(s, y); err != nil {
			return false, err
		}
		if !bytes.Equal(x, y) {
			return false, nil
		}
		left -= n
	}
	return true, nil
}

// result returns the entry that an outcome gives the key, if any.
func (c *Conflict) result(o Outcome) (e fb.Entry, has bool) {
	switch o {
	case TakeLeft:
		return c.Left, c.HasLeft
	case TakeRight:
		return c.Right, c.HasRight
	case TakeNew:
		return c.New, true
	}
	return fb.Entry{}, false
}

// toward returns the change that gives the left tree the entry of an outcome, and whether a change
// is needed.
func (c *Conflict) toward(o Outcome) (change btree.Change, changes bool) {
	e, has := c.result(o)
	if SameEntry(&c.Left, c.HasLeft, &e, has) {
		return btree.Change{}, false
	}
	e.Key = c.Key
	return btree.Change{Delete: !has, Entry: e}, true
}

// flush gets answers to the questions of the window, and yields its changes in order.
func (j *joiner) flush(ctx context.Context, yield take) bool {
	w := &j.window
	if w.questions == 0 {
		return true
	}
	err := ctx.Err()
	for rule := 0; err == nil && rule < len(w.asked); rule++ {
		if len(w.asked[rule]) > 0 {
			err = j.decide(ctx, rule, w.asked[rule])
		}
	}
	for i := 0; err == nil && i < len(w.items); i++ {
		it := &w.items[i]
		if it.asked {
			err = j.answer(ctx, it, &w.asked[it.rule][it.at])
		}
		if err == nil && !j.pass(ctx, it, yield) {
			return false
		}
	}
	if err != nil {
		yield(btree.Change{}, err)
		return false
	}
	w.clear()
	return true
}

func (j *joiner) decide(ctx context.Context, rule int, cs []Conflict) error {
	d := j.rules.rules[rule].Decider
	var err error
	if j.base != nil {
		_, err = d.(ByValue).decideAll(ctx, j.p, cs) // no other is asked
	} else {
		err = d.Decide(ctx, j.p, cs)
	}
	if err != nil {
		return fmt.Errorf("decide %d conflicts by the rule for prefix %s: %w", len(cs), keyText(j.rules.rules[rule].Prefix), err)
	}
	return nil
}

// answer applies the answer about an item.
func (j *joiner) answer(ctx context.Context, it *item, c *Conflict) error {
	switch {
	case !bytes.Equal(c.Key, it.key):
		return fmt.Errorf("decide conflict of key %s: the decider has put another in its place: %w", keyText(it.key), base.ErrInvalid)
	case c.Outcome == Undecided && j.base != nil:
		it.lose(c)
		return nil
	case c.Outcome == Undecided:
		return fmt.Errorf("decide conflict of key %s: the decider has left it undecided: %w", keyText(it.key), base.ErrInvalid)
	case c.Outcome > TakeNone:
		return fmt.Errorf("decide conflict of key %s: outcome %d: %w", keyText(it.key), c.Outcome, base.ErrInvalid)
	}
	it.change, it.changes = c.toward(c.Outcome)
	if j.base != nil {
		return nil
	}
	if it.plain != Undecided { // asked because the rule asks about all keys
		was, had := c.result(it.plain)
		if is, has := c.result(c.Outcome); SameEntry(&was, had, &is, has) {
			return nil
		}
	}
	value, err := c.decision()
	if err != nil {
		return err
	}
	return j.note(ctx, it.key, value)
}
