package storage

// nodeTable finds cached nodes by their slots: a table of pointers with linear probing. A map would
// load two more cache lines at each look-up, which dominate reads of a page larger than the
// processor's caches:
//
//	cd bench && go test -run '^$' -bench 'PointGet|Scan' -benchtime 1x .
type nodeTable struct {
	places []*cachedNode // a power of two, at most half full
	n      int
}

const minPlaces = 16

// home returns the preferred place of a slot. The lower bits have selected the shard.
func (t *nodeTable) home(slot uint64) int { return int(slot/cacheShards) & (len(t.places) - 1) }

func (t *nodeTable) next(i int) int { return (i + 1) & (len(t.places) - 1) }

func (t *nodeTable) find(slot uint64) *cachedNode {
	if t.n == 0 {
		return nil
	}
	for i := t.home(slot); ; i = t.next(i) {
		if e := t.places[i]; e == nil || e.slot() == slot {
			return e
		}
	}
}

// add adds an entry whose slot is not in the table.
func (t *nodeTable) add(e *cachedNode) {
	if 2*(t.n+1) > len(t.places) {
		old := t.places
		t.places = make([]*cachedNode, max(minPlaces, 2*len(old)))
		for _, o := range old {
			if o != nil {
				t.put(o)
			}
		}
	}
	t.put(e)
	t.n++
}

func (t *nodeTable) put(e *cachedNode) {
	i := t.home(e.slot())
	for t.places[i] != nil {
		i = t.next(i)
	}
	t.places[i] = e
}

// remove removes an entry and moves up later ones that would no longer be found.
func (t *nodeTable) remove(e *cachedNode) {
	if t.find(e.slot()) != e {
		return
	}
	i := t.home(e.slot())
	for t.places[i] != e {
		i = t.next(i)
	}
	t.places[i] = nil
	t.n--
	for i = t.next(i); t.places[i] != nil; i = t.next(i) {
		o := t.places[i]
		t.places[i] = nil
		t.put(o)
	}
}
