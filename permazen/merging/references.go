package merging

import (
	"context"
	"maps"

	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// references applies the delete actions of references to objects that the merge has deleted.
func (m *Merge) references(ctx context.Context, dead map[encoding.ObjID]bool) error {
	revived := map[encoding.ObjID]bool{}
	for {
		plan, err := m.plan(ctx, dead, revived)
		if err != nil {
			return err
		}
		if plan.forbidden == nil {
			return m.carryOut(ctx, plan, dead)
		}
		for _, id := range plan.forbidden {
			revived[id] = true
			if !dead[id] {
				continue // its deletion followed from that of another object
			}
			delete(dead, id)
			if err := m.revive(ctx, id); err != nil {
				return err
			}
		}
	}
}

// deaths are objects to delete, in order. A deletion that follows from another one has a cause.
type deaths struct {
	order     []encoding.ObjID
	cause     map[encoding.ObjID]encoding.ObjID
	forbidden []encoding.ObjID // an object that must stay, and the objects from which its deletion follows
}

func (m *Merge) plan(ctx context.Context, dead, revived map[encoding.ObjID]bool) (*deaths, error) {
	p := &deaths{cause: map[encoding.ObjID]encoding.ObjID{}}
	p.order = sorted(dead)
	dying := maps.Clone(dead)
	var firm []encoding.ObjID // the chain of deletions that would delete an object that must stay
	for i := 0; i < len(p.order) && firm == nil; i++ {
		id := p.order[i]
		add := func(other encoding.ObjID) {
			switch {
			case dying[other]:
			case revived[other]:
				firm = p.chain(id)
			default:
				dying[other], p.cause[other] = true, id
				p.order = append(p.order, other)
			}
		}
		err := m.united.Referrers(ctx, m.v.Result, id, func(r layout.Referrer) error {
			if r.Field.Model.InverseDelete == schema.Delete {
				add(r.ID)
			}
			return nil
		})
		if err == nil && !dead[id] { // the side that deleted a dead object has already deleted its targets
			err = m.forward(ctx, id, add)
		}
		if err != nil {
			return nil, err
		}
	}
	p.forbidden = firm
	for i := 0; i < len(p.order) && p.forbidden == nil; i++ {
		id := p.order[i]
		err := m.united.Referrers(ctx, m.v.Result, id, func(r layout.Referrer) error {
			if r.Field.Model.InverseDelete == schema.Exception && !dying[r.ID] && p.forbidden == nil {
				p.forbidden = p.chain(id)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// forward calls add for the objects that are deleted together with an object.
func (m *Merge) forward(ctx context.Context, id encoding.ObjID, add func(encoding.ObjID)) error {
	o, err := m.united.ReadObject(ctx, m.v.Result, id)
	if err != nil {
		return err
	}
	for _, target := range o.ForwardTargets() {
		there, err := m.united.ReadMeta(ctx, m.v.Result, target)
		if err != nil {
			return err
		}
		if there != nil {
			add(target)
		}
	}
	return nil
}

// chain returns an object and the objects from which its deletion follows.
func (p *deaths) chain(id encoding.ObjID) []encoding.ObjID {
	ids := []encoding.ObjID{id}
	for {
		cause, ok := p.cause[id]
		if !ok {
			return ids
		}
		ids, id = append(ids, cause), cause
	}
}

// revive writes an object to the result as it is on the side that has not deleted it.
func (m *Merge) revive(ctx context.Context, id encoding.ObjID) error {
	_, v, err := m.versions(ctx, id)
	if err != nil {
		return err
	}
	o := v.left
	if o == nil {
		o = v.right
	}
	return layout.Replace(ctx, m.v.Result, nil, o)
}

func (m *Merge) carryOut(ctx context.Context, p *deaths, dead map[encoding.ObjID]bool) error {
	for _, id := range p.order {
		if dead[id] {
			continue
		}
		o, err := m.united.ReadObject(ctx, m.v.Result, id)
		if err == nil {
			err = layout.Replace(ctx, m.v.Result, o, nil)
		}
		if err != nil {
			return err
		}
	}
	for _, id := range p.order {
		referrers := map[encoding.ObjID]bool{}
		err := m.united.Referrers(ctx, m.v.Result, id, func(r layout.Referrer) error {
			referrers[r.ID] = true
			return nil
		})
		if err != nil {
			return err
		}
		for _, by := range sorted(referrers) {
			if err := m.release(ctx, by, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// release applies the delete actions to the references from one object to another.
func (m *Merge) release(ctx context.Context, by, id encoding.ObjID) error {
	before, err := m.united.ReadObject(ctx, m.v.Result, by)
	if before == nil {
		return err
	}
	after := before.Clone()
	changed := after.Release(func(f *layout.Field, target encoding.ObjID) layout.Fate {
		if target != id {
			return layout.Keep
		}
		return layout.FateOf(f.Model.InverseDelete)
	})
	if !changed {
		return nil
	}
	return layout.Replace(ctx, m.v.Result, before, after)
}
