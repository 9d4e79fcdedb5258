package merge

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Decision is what was decided about a key in a merge. The decisions of a merge stand in a tree of
// their own, the explanation: the key is the key, the value what Encode gives
// (docs/format/records.md has the layout).
type Decision struct {
	Key     []byte
	Outcome Outcome
	Rule    string
	// LeftWriter and RightWriter are zero where the decider did not look for them.
	LeftWriter, RightWriter commit.ID
}

// The layout of a decision. It is at most 197 bytes long, so that it is always inline:
//
//	offset  bytes  content
//	0       1      format version: 1
//	1       1      outcome: 1 left, 2 right, 3 new, 4 deleted
//	2       1      flags: 1 left writer, 2 right writer; the others are 0
//	3       1..2   length r of the rule's name in bytes, uvarint in its shortest form, 1 to 128
//	        r      the rule's name, UTF-8
//	        32     id of the left writer, if its flag is set; not zero
//	        32     id of the right writer, if its flag is set; not zero
const (
	decisionVersion = 1
	decisionHeader  = 3
	decisionWhere   = "decision"

	flagLeftWriter  = 1 << 0
	flagRightWriter = 1 << 1
)

// Encode returns the canonical bytes of d without its key. Errors: base.ErrInvalid for an outcome
// that is none, and a rule that is empty, longer than MaxRuleBytes or not UTF-8.
func (d *Decision) Encode() ([]byte, error) {
	switch {
	case d.Outcome == Undecided || d.Outcome > TakeNone:
		return nil, fmt.Errorf("encode decision with outcome %d: %w", d.Outcome, base.ErrInvalid)
	case d.Rule == "" || len(d.Rule) > MaxRuleBytes:
		return nil, fmt.Errorf("encode decision with a rule's name of %d bytes, 1 to %d are allowed: %w", len(d.Rule), MaxRuleBytes, base.ErrInvalid)
	case !utf8.ValidString(d.Rule):
		return nil, fmt.Errorf("encode decision with a rule's name that is not UTF-8: %w", base.ErrInvalid)
	}
	return d.append(make([]byte, 0, decisionHeader+binary.MaxVarintLen16+len(d.Rule)+2*commit.IDSize)), nil
}

func (d *Decision) append(b []byte) []byte {
	var flags byte
	if !d.LeftWriter.IsZero() {
		flags |= flagLeftWriter
	}
	if !d.RightWriter.IsZero() {
		flags |= flagRightWriter
	}
	b = append(b, decisionVersion, byte(d.Outcome), flags)
	b = binary.AppendUvarint(b, uint64(len(d.Rule)))
	b = append(b, d.Rule...)
	if flags&flagLeftWriter != 0 {
		b = append(b, d.LeftWriter[:]...)
	}
	if flags&flagRightWriter != 0 {
		b = append(b, d.RightWriter[:]...)
	}
	return b
}

// DecodeDecision reads a decision about key, which it retains, from what Encode gives, which it
// does not retain. Errors: *base.CorruptError, *base.FormatError.
func DecodeDecision(key, b []byte) (Decision, error) {
	if len(b) < decisionHeader+1 {
		return Decision{}, corruptDecision("only %d bytes", len(b))
	}
	if b[0] > decisionVersion {
		return Decision{}, &base.FormatError{What: decisionWhere, Found: uint64(b[0]), Supported: decisionVersion}
	}
	d := Decision{Key: key, Outcome: Outcome(b[1])}
	flags := b[2]
	if d.Outcome == Undecided || d.Outcome > TakeNone || flags&^(flagLeftWriter|flagRightWriter) != 0 {
		return Decision{}, corruptDecision("outcome %d with flags %#x", b[1], flags)
	}
	length, n := binary.Uvarint(b[decisionHeader:])
	rest := b[decisionHeader+max(n, 0):]
	if n <= 0 || length == 0 || length > MaxRuleBytes || length > uint64(len(rest)) {
		return Decision{}, corruptDecision("a rule's name of %d bytes in %d", length, len(rest))
	}
	d.Rule, rest = string(rest[:length]), rest[length:]
	for _, w := range []struct {
		flag byte
		id   *commit.ID
	}{{flagLeftWriter, &d.LeftWriter}, {flagRightWriter, &d.RightWriter}} {
		if flags&w.flag == 0 {
			continue
		}
		if len(rest) < commit.IDSize {
			return Decision{}, corruptDecision("a writer of %d bytes", len(rest))
		}
		*w.id, rest = commit.ID(rest), rest[commit.IDSize:]
	}
	if again, err := d.Encode(); err != nil || !bytes.Equal(again, b) {
		return Decision{}, corruptDecision("not the canonical layout")
	}
	return d, nil
}

func corruptDecision(format string, args ...any) error {
	return &base.CorruptError{Where: decisionWhere, Got: fmt.Sprintf(format, args...)}
}

// Decisions yields the decisions in the tree with the given root whose keys begin with prefix, in
// order of keys. Their keys must not be changed. A zero root, which a merge without decisions has,
// gives none. The last pair has the error, if there is one.
func Decisions(ctx context.Context, v *View, root object.Digest, prefix []byte) iter.Seq2[Decision, error] {
	return func(yield func(Decision, error) bool) {
		if root.IsZero() {
			return
		}
		c := v.tree(root).Cursor()
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
