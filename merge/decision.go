package merge

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Decision is the decision about a key in a merge. The decisions of a merge are in a tree of their
// own, the explanation: the key is the key, the value the result of Encode (docs/format/records.md
// has the layout).
type Decision struct {
	Key     []byte
	Outcome Outcome
	Rule    string
	// LeftWriter and RightWriter are zero where the decider did not look for them.
	LeftWriter, RightWriter commit.ID
}

// The layout of a decision. It is at most 194 bytes long, so that it is always inline:
//
//	offset  bytes   content
//	0       1       format version: 1
//	1       1       outcome: 1 left, 2 right, 3 new, 4 deleted
//	2       32      id of the left writer, zeros where there is none
//	34      32      id of the right writer, zeros where there is none
//	66      1..128  the rule's name, UTF-8
const (
	decisionVersion = 1
	decisionHeader  = 2 + 2*commit.IDSize
	decisionWhere   = "decision"
)

// Encode returns the canonical bytes of d without its key. Errors: base.ErrInvalid for an invalid
// outcome, and a rule that is empty, longer than MaxRuleBytes or not UTF-8.
func (d *Decision) Encode() ([]byte, error) {
	switch {
	case d.Outcome == Undecided || d.Outcome > TakeNone:
		return nil, fmt.Errorf("encode decision with outcome %d: %w", d.Outcome, base.ErrInvalid)
	case d.Rule == "" || len(d.Rule) > MaxRuleBytes:
		return nil, fmt.Errorf("encode decision with a rule's name of %d bytes, 1 to %d are allowed: %w", len(d.Rule), MaxRuleBytes, base.ErrInvalid)
	case !utf8.ValidString(d.Rule):
		return nil, fmt.Errorf("encode decision with a rule's name that is not UTF-8: %w", base.ErrInvalid)
	}
	b := append(make([]byte, 0, decisionHeader+len(d.Rule)), decisionVersion, byte(d.Outcome))
	b = append(append(b, d.LeftWriter[:]...), d.RightWriter[:]...)
	return append(b, d.Rule...), nil
}

// DecodeDecision reads a decision about key, which it retains, from the result of Encode, which it
// does not retain. Errors: *base.CorruptError, *base.FormatError.
func DecodeDecision(key, b []byte) (Decision, error) {
	switch {
	case len(b) < decisionHeader:
		return Decision{}, corruptDecision("only %d bytes", len(b))
	case b[0] > decisionVersion:
		return Decision{}, &base.FormatError{What: decisionWhere, Found: uint64(b[0]), Supported: decisionVersion}
	}
	d := Decision{
		Key: key, Outcome: Outcome(b[1]), Rule: string(b[decisionHeader:]),
		LeftWriter: commit.ID(b[2 : 2+commit.IDSize]), RightWriter: commit.ID(b[2+commit.IDSize : decisionHeader]),
	}
	if again, err := d.Encode(); err != nil || !bytes.Equal(again, b) {
		return Decision{}, corruptDecision("outcome %d and a rule's name of %d bytes in version %d", d.Outcome, len(d.Rule), b[0])
	}
	return d, nil
}

// decision returns the encoded decision about a decided conflict.
func (c *Conflict) decision() ([]byte, error) {
	d := Decision{Key: c.Key, Outcome: c.Outcome, Rule: c.Rule, LeftWriter: c.LeftWriter, RightWriter: c.RightWriter}
	value, err := d.Encode()
	if err != nil {
		return nil, fmt.Errorf("record the decision about key %s: %w", keyText(c.Key), err)
	}
	return value, nil
}

func corruptDecision(format string, args ...any) error {
	return &base.CorruptError{Where: decisionWhere, Got: fmt.Sprintf(format, args...)}
}

// decisions returns a tree of decisions.
func (v *View) decisions(root object.Digest) btree.Tree {
	return btree.Tree{Page: v.Page, Source: v.Nodes, Root: root}
}

// Decisions yields the decisions in the tree with the given root whose keys begin with prefix, in
// order of keys. Their keys must not be changed. A zero root, that of a merge without decisions,
// gives none. The last pair holds the error, if there is one.
func Decisions(ctx context.Context, v *View, root object.Digest, prefix []byte) iter.Seq2[Decision, error] {
	return func(yield func(Decision, error) bool) {
		if root.IsZero() {
			return
		}
		c := v.decisions(root).Cursor()
		for ok, err := c.Seek(ctx, prefix); ok || err != nil; ok, err = c.Next(ctx) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(Decision{}, fmt.Errorf("read decisions: %w", err))
				return
			}
			e := c.Entry()
			if !bytes.HasPrefix(e.Key, prefix) {
				return
			}
			d, err := DecodeDecision(e.Key, e.Value)
			if err != nil {
				yield(Decision{}, fmt.Errorf("read the decision about key %s: %w", keyText(e.Key), err))
				return
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}
