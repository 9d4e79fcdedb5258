package permazen

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Delete deletes an object and applies the delete actions of references to it. Targets of the
// object's forward-delete fields are deleted too. It checks refusals before it changes anything. It
// reports whether the object existed. Errors: ErrReferenced, as *ReferencedError; then nothing has
// changed.
func (tx *Tx) Delete(ctx context.Context, id ObjID) (bool, error) {
	if err := tx.writable(); err != nil {
		return false, err
	}
	if there, err := tx.Exists(ctx, id); !there || err != nil {
		return false, err
	}
	d := deletion{tx: tx, dead: map[ObjID]bool{}}
	if err := d.plan(ctx, id); err != nil {
		return false, fmt.Errorf("delete object %s: %w", id, err)
	}
	for _, id := range d.order {
		o, err := tx.tables.ReadObject(ctx, tx.r, id)
		if err == nil {
			err = layout.Replace(ctx, tx.w, o, nil)
		}
		if err != nil {
			return false, fmt.Errorf("delete object %s: %w", id, err)
		}
	}
	tx.forget()
	for _, id := range d.order {
		if err := d.release(ctx, id); err != nil {
			return false, fmt.Errorf("delete object %s: %w", id, err)
		}
	}
	return true, nil
}

// deletion is a deletion with all deletions that follow from it.
type deletion struct {
	tx    *Tx
	dead  map[ObjID]bool
	order []ObjID
}

// plan collects the objects to delete. It refuses when a reference from another object forbids it.
func (d *deletion) plan(ctx context.Context, id ObjID) error {
	d.dead[id], d.order = true, []ObjID{id}
	for i := 0; i < len(d.order); i++ {
		id := d.order[i]
		o, err := d.tx.tables.ReadObject(ctx, d.tx.r, id)
		if err != nil {
			return err
		}
		for _, target := range o.ForwardTargets() {
			if there, err := d.tx.Exists(ctx, target); err != nil {
				return err
			} else if there {
				d.add(target)
			}
		}
		err = d.tx.tables.Referrers(ctx, d.tx.r, id, func(r layout.Referrer) error {
			if r.Field.Model.InverseDelete == schema.Delete {
				d.add(r.ID)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, id := range d.order {
		err := d.tx.tables.Referrers(ctx, d.tx.r, id, func(r layout.Referrer) error {
			if r.Field.Model.InverseDelete == schema.Exception && r.ID != id && (!d.dead[r.ID] || id == d.order[0]) {
				return &ReferencedError{ID: id, By: r.ID, Field: r.Field.Name()}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *deletion) add(id ObjID) {
	if !d.dead[id] {
		d.dead[id] = true
		d.order = append(d.order, id)
	}
}

// release nullifies or removes the references to a deleted object.
func (d *deletion) release(ctx context.Context, id ObjID) error {
	var referrers []ObjID
	err := d.tx.tables.Referrers(ctx, d.tx.r, id, func(r layout.Referrer) error {
		if a := r.Field.Model.InverseDelete; a == schema.Nullify || a == schema.Remove {
			if n := len(referrers); n == 0 || referrers[n-1] != r.ID {
				referrers = append(referrers, r.ID)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, by := range referrers {
		before, err := d.tx.tables.ReadObject(ctx, d.tx.r, by)
		if err != nil {
			return err
		}
		if before == nil {
			continue
		}
		after := before.Clone()
		after.Release(func(f *layout.Field, target ObjID) layout.Fate {
			if target != id {
				return layout.Keep
			}
			return layout.FateOf(f.Model.InverseDelete)
		})
		if err := layout.Replace(ctx, d.tx.w, before, after); err != nil {
			return err
		}
	}
	return nil
}
