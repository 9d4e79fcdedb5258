package merge

import (
	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// A window is answered when it has windowItems items or windowBytes bytes of keys and inline
// values.
const (
	windowItems = 8192
	windowBytes = 8 << 20
)

// item is a key of a window: a change, or a question that becomes one.
type item struct {
	key     []byte
	change  btree.Change
	changes bool // change is one
	lost    bool // the key becomes unknown in a virtual base
	// asked says that the item is asked.at of its rule. plain is the outcome without a rule.
	asked bool
	plain Outcome
	rule  int
	at    int
}

// lose makes the key unknown: a virtual base does not have it.
func (it *item) lose(c *Conflict) {
	it.lost = true
	it.change, it.changes = c.toward(TakeNone)
}

// window holds keys in order while questions wait for their answers, so that a rule is asked about
// many at once. It is empty while there is no question. It holds copies: a key borrowed from a node
// pins the whole node.
type window struct {
	items     []item
	asked     [][]Conflict // by rule
	questions int
	bytes     int
	arena     []byte
}

// ask adds a question.
func (w *window) ask(it *item, c *Conflict) {
	own := *c
	own.Key = w.copy(c.Key)
	w.own(&own.Base, c.HasBase)
	w.own(&own.Left, c.HasLeft)
	w.own(&own.Right, c.HasRight)
	if own.HasLeft {
		own.Left.Key = own.Key
	}
	if own.HasBase {
		own.Base.Key = own.Key
	}
	if own.HasRight {
		own.Right.Key = own.Key
	}
	it.key, it.at = own.Key, len(w.asked[it.rule])
	w.asked[it.rule] = append(w.asked[it.rule], own)
	w.items = append(w.items, *it)
	w.questions++
}

// keep adds a change.
func (w *window) keep(it *item) {
	it.key = w.copy(it.key)
	w.own(&it.change.Entry, !it.change.Delete)
	it.change.Entry.Key = it.key
	w.items = append(w.items, *it)
}

// own makes the window the owner of an entry's value.
func (w *window) own(e *fb.Entry, has bool) {
	if has && e.Inline {
		e.Value = w.copy(e.Value)
	}
}

// arenaBytes is how much is allocated at once for copies. Deciders may keep them, so that an arena
// is not reused.
const arenaBytes = 64 << 10

func (w *window) copy(b []byte) []byte {
	if cap(w.arena)-len(w.arena) < len(b) {
		w.arena = make([]byte, 0, max(arenaBytes, len(b)))
	}
	at := len(w.arena)
	w.arena = append(w.arena, b...)
	w.bytes += len(b)
	return w.arena[at:len(w.arena):len(w.arena)]
}

func (w *window) full() bool { return len(w.items) >= windowItems || w.bytes >= windowBytes }

// clear empties the window. It keeps the memory of its items and, for all rules together, of the
// questions of two windows.
func (w *window) clear() {
	clear(w.items)
	w.items = w.items[:0]
	for i := range w.asked {
		clear(w.asked[i])
		if w.asked[i] = w.asked[i][:0]; cap(w.asked[i]) > 2*windowItems/len(w.asked) {
			w.asked[i] = nil
		}
	}
	w.questions, w.bytes, w.arena = 0, 0, nil
}
