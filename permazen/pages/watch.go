package pages

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
)

// ChangeKind is the kind of a change.
type ChangeKind uint8

// The kinds of changes.
const (
	// Changed reports a new value of a field, or an element that was added, removed or replaced.
	Changed ChangeKind = iota
	// Created and Deleted report objects; Migrated reports an object with another schema. Fields of
	// created and deleted objects are reported too, unless they have default values.
	Created
	Deleted
	Migrated
)

// Change is a difference between two commits, in an object or one of its fields.
type Change struct {
	Kind ChangeKind
	ID   encoding.ObjID
	// Type is the name of the object's type.
	Type string
	// Field is the name of the field. It is empty unless Kind is Changed.
	Field string
	// Key is the index in a list, as int, or the key in a map.
	Key any
	// Old and New are values, or elements of a set. nil means null, or no such element.
	Old, New any
}

// WatchOptions filter DB.Watch. The zero value and a nil pointer select all changes from now on.
type WatchOptions struct {
	// Type selects the objects of one type, and Fields some of its fields. Kinds other than Changed
	// are reported only if Fields is empty.
	Type   string
	Fields []string
	// From is the commit after which the watch begins; zero means the handle's head.
	From ledger.CommitID
}

// Notification describes the differences between two commits; see ledger.Notification.
type Notification struct {
	ledger.Notification
	// Objects are the changes in Notification.Changes by ascending object id. It is empty when only
	// other rows have changed.
	Objects []Change
}

// Watch yields changes of objects as they become durable, with the guarantees of ledger.Page.Watch.
// o may be nil. Errors: as there, and base.ErrCorrupt.
func (d *DB) Watch(ctx context.Context, o *WatchOptions) iter.Seq2[Notification, error] {
	if o == nil {
		o = &WatchOptions{}
	}
	w := watcher{db: d, o: *o}
	notes := d.page.Watch(ctx, &ledger.WatchOptions{Prefix: d.prefix, From: o.From})
	return func(yield func(Notification, error) bool) {
		for n, err := range notes {
			out := Notification{Notification: n}
			if err == nil {
				out.Objects, err = w.read(ctx, &n)
			}
			if err != nil {
				yield(Notification{}, err)
				return
			}
			if len(out.Objects) > 0 && !yield(out, nil) {
				return
			}
		}
	}
}

// watcher converts changes of rows to changes of objects.
type watcher struct {
	db *DB
	o  WatchOptions
}

// side is the commit before or after the changes.
type side struct {
	snapshot *ledger.Snapshot
	tables   *layout.Tables
	id       encoding.ObjID // id and type of the object read last
	typ      *layout.Type
}

func (w *watcher) open(ctx context.Context, id ledger.CommitID) (*side, error) {
	s, err := w.db.page.At(ctx, id)
	if err != nil {
		return nil, err
	}
	t, err := layout.Load(ctx, Reader(s.Reader, w.db.prefix))
	if errors.Is(err, layout.ErrUninitialized) {
		t, err = layout.New(nil, map[string]uint32{})
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &side{snapshot: s, tables: t}, nil
}

func (w *watcher) read(ctx context.Context, n *ledger.Notification) (all []Change, err error) {
	before, err := w.open(ctx, n.Base)
	if err != nil {
		return nil, fmt.Errorf("read what was before a change: %w", err)
	}
	defer func() { err = errors.Join(err, before.snapshot.Close()) }()
	after, err := w.open(ctx, n.Commit.ID)
	if err != nil {
		return nil, fmt.Errorf("read what a change has made: %w", err)
	}
	defer func() { err = errors.Join(err, after.snapshot.Close()) }()
	for _, c := range n.Changes {
		id, err := encoding.ReadObjID(c.Key[len(w.db.prefix):])
		if err != nil || !before.tables.IsType(id.Type()) && !after.tables.IsType(id.Type()) {
			continue // a row of a table or index
		}
		change, ok, err := w.change(ctx, before, after, id, c)
		if err != nil {
			return nil, fmt.Errorf("read a change of object %s: %w", id, err)
		}
		if ok {
			all = append(all, change)
		}
	}
	return all, nil
}

// typeOf returns the type of an object on a side, or nil when the object does not exist there.
func (w *watcher) typeOf(ctx context.Context, s *side, id encoding.ObjID) (*layout.Type, error) {
	if s.id == id {
		return s.typ, nil
	}
	t, err := s.tables.ReadMeta(ctx, Reader(s.snapshot.Reader, w.db.prefix), id)
	if err != nil {
		return nil, err
	}
	s.id, s.typ = id, t
	return t, nil
}

// change converts the change of a row, and reports whether the watch yields it.
func (w *watcher) change(ctx context.Context, before, after *side, id encoding.ObjID, c ledger.Change) (out Change, ok bool, err error) {
	was, err := w.typeOf(ctx, before, id)
	if err != nil {
		return out, false, err
	}
	is, err := w.typeOf(ctx, after, id)
	if err != nil {
		return out, false, err
	}
	out.ID = id
	if is != nil {
		out.Type = is.Model.Name
	} else if was != nil {
		out.Type = was.Model.Name
	}
	if w.o.Type != "" && out.Type != w.o.Type {
		return out, false, nil
	}
	rest := c.Key[len(w.db.prefix)+len(id):]
	if len(rest) == 0 {
		switch {
		case was == nil:
			out.Kind = Created
		case is == nil:
			out.Kind = Deleted
		default:
			out.Kind = Migrated
		}
		return out, len(w.o.Fields) == 0, nil
	}
	out.Old, err = out.read(ctx, was, rest, c.Old)
	if err == nil {
		out.New, err = out.read(ctx, is, rest, c.New)
	}
	wanted := out.Field != "" && (len(w.o.Fields) == 0 || slices.Contains(w.o.Fields, out.Field))
	return out, wanted, err
}

// read decodes one version of a row and sets Field and Key. An absent row of a field with one value
// means the default.
func (c *Change) read(ctx context.Context, t *layout.Type, rest []byte, e *ledger.Entry) (any, error) {
	n, size, err := encoding.StrictUint(rest)
	if err != nil || t == nil {
		return nil, err
	}
	f := t.ByID(n)
	if f == nil {
		return nil, nil // the field is not in this schema
	}
	c.Field = f.Model.Name
	var value []byte
	switch {
	case e != nil:
		if value, err = e.Value(ctx); err != nil {
			return nil, err
		}
	case f.Codec != nil:
		value = f.Default
	default:
		return nil, nil
	}
	key, v, err := f.Decode(rest[size:], value)
	if key != nil {
		c.Key = key
	}
	return v, err
}
