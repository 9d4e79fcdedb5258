package epoch

import "slices"

// Object is an object of a past epoch that may be deleted.
type Object struct {
	// Dir is the epoch in whose directory it is.
	Dir ID
	// ID is the id of a pack or of a checkpoint. Of an entry it is zero.
	ID ID
}

// Deletion says what a device may delete: in a past epoch, whatever its own epoch does not name.
type Deletion struct {
	// Began is when the object of the device's epoch was created, and Kind says why it was.
	Began Time
	Kind  Kind
	// Ancestors are the epochs from which the device's epoch descends.
	Ancestors []ID
	// Named are the packs, and the parts of checkpoints, of past epochs that the device's epoch
	// names.
	Named []ID
}

// May reports whether o may be deleted at now. An epoch later than the device's names only what the
// device's epoch names, or what is in directories of later epochs; so the answer stays right
// however late the request arrives.
func (d *Deletion) May(o Object, now Time) bool {
	if now < d.Began.Add(Grace) {
		return false
	}
	if d.Kind == Deleted {
		return true
	}
	return slices.Contains(d.Ancestors, o.Dir) && (o.ID == ID{} || !slices.Contains(d.Named, o.ID))
}
