package epoch

import "slices"

// Object is an object of a past epoch that may be deleted.
type Object struct {
	// Dir is the epoch in whose directory it is.
	Dir ID
	// ID is the id of a pack or of a checkpoint, zero for an entry.
	ID ID
}

// Deletion says which objects of past epochs a device may delete: those that its epoch does not
// name.
type Deletion struct {
	// Lineage are the device's own epoch and those from which it descends, the own one first.
	Lineage []Began
	Kind    Kind
	// Named are the packs and the parts of checkpoints in past epochs that the device's epoch
	// names. Dropped are those that an epoch of the lineage was the first not to name.
	Named   []ID
	Dropped []Drop
}

// Began says when the object of an epoch was created.
type Began struct {
	Epoch ID
	At    Time
}

// May reports whether o may be deleted at now: Grace after the first epoch of the lineage began
// that does not need o. A later epoch than the device's names only objects that the device's epoch
// names, or objects in directories of later epochs. So the answer stays right however late the
// delete request arrives.
func (d *Deletion) May(o Object, now Time) bool {
	own := d.Lineage[0].At
	if d.Kind == Deleted {
		return now >= own.Add(Grace)
	}
	i := slices.IndexFunc(d.Lineage, func(b Began) bool { return b.Epoch == o.Dir })
	if i < 1 || o.ID != (ID{}) && slices.Contains(d.Named, o.ID) {
		return false
	}
	unneeded := d.Lineage[i-1].At
	if j := slices.IndexFunc(d.Dropped, func(p Drop) bool { return p.Pack == o.ID }); j >= 0 && o.ID != (ID{}) {
		k := slices.IndexFunc(d.Lineage, func(b Began) bool { return b.Epoch == d.Dropped[j].By })
		unneeded = max(unneeded, d.Lineage[max(k, 0)].At) // the device's own one, where the bucket has lost By
	}
	return now >= unneeded.Add(Grace)
}
