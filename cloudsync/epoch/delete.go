package epoch

import "slices"

// Object is an object of a past epoch that may be deleted.
type Object struct {
	// Dir is the epoch in whose directory it is, or a proposal that did not become an epoch.
	Dir ID
	// ID is the id of a pack or of a checkpoint, zero for an entry.
	ID ID
	// Created is when the bucket received it.
	Created Time
}

// Began says when the object of an epoch was created.
type Began struct {
	Epoch ID
	At    Time
}

// Settled returns the index of the newest epoch of a lineage that began Grace before now or
// earlier, and the length of the lineage if there is none. The own epoch is the first of the
// lineage, and each one descends from the next.
func Settled(lineage []Began, now Time) int {
	for i, b := range lineage {
		if now >= b.At.Add(Grace) {
			return i
		}
	}
	return len(lineage)
}

// Deletion says which objects of past epochs a device may delete: those that the settled epoch of
// its lineage does not need.
type Deletion struct {
	Lineage []Began
	Kind    Kind // of the own epoch
	Settled int  // as the function returns it
	// Named are the packs and the parts of checkpoints in past epochs that the settled one names.
	Named []ID
}

// Past reports whether o is older than the own epoch, or belongs to a deleted page. If the own
// epoch does not name it, it may be deleted at some time.
func (d *Deletion) Past(o Object) bool { return d.Kind == Deleted || d.before(o, 0) }

// May reports whether o may be deleted: Grace has passed since the first epoch of the lineage began
// that does not need it. An epoch after the settled one names only objects that the settled one
// names, or objects in directories of later epochs. So the answer stays right however late the
// delete request arrives.
func (d *Deletion) May(o Object) bool {
	if d.Kind == Deleted {
		return d.Settled == 0
	}
	return d.before(o, d.Settled) && (o.ID == ID{} || !slices.Contains(d.Named, o.ID))
}

// before reports whether o is older than an epoch of the lineage. Outside the lineage, as in a
// proposal that came too late, the time decides, if it is known: a proposal that can still become
// an epoch was written after the present one began.
func (d *Deletion) before(o Object, epoch int) bool {
	i := slices.IndexFunc(d.Lineage, func(b Began) bool { return b.Epoch == o.Dir })
	return i > epoch || i < 0 && o.Created != 0 && epoch < len(d.Lineage) && o.Created < d.Lineage[epoch].At
}
