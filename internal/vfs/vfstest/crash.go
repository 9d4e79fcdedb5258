package vfstest

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// KeepNone is a keep function for CrashClone: all data that is not durable is lost.
func KeepNone() float64 { return 0 }

// KeepAll is a keep function for CrashClone: everything is kept, except data lost by a failed sync.
func KeepAll() float64 { return 1 }

// KeepSome returns a keep function for CrashClone that loses, keeps and tears at random, the same
// for equal seeds.
func KeepSome(seed uint64) func() float64 {
	return rand.New(rand.NewPCG(seed, 0x6c6f67)).Float64
}

// CrashClone returns the result of a power cut at this moment as a new file system in which
// everything is durable. It does not change m, and the two share no mutable state.
//
// keep decides: it is called at least once for each change that is not durable and returns a number
// from 0 to 1. A change of a name is kept from 1/2 on; kept changes apply in their original order.
// Data written to a file since its last sync is lost below 1/3, kept completely from 2/3 on, and
// torn in between: then keep is called for each sector of 512 bytes, and for the size. The order of
// calls depends only on the history of m. See KeepNone, KeepAll, KeepSome.
func (m *Mem) CrashClone(keep func() float64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{keep: keep, done: map[node]node{}}
	root := c.dir(m.root)
	return &Mem{root: root}
}

// crash is one CrashClone; done maps nodes to their clones, since a file may have two names.
type crash struct {
	keep func() float64
	done map[node]node
}

func (c *crash) node(n node) node {
	if d, ok := c.done[n]; ok {
		return d
	}
	var out node
	switch n := n.(type) {
	case *dirNode:
		out = c.dir(n)
	case *fileNode:
		out = c.file(n)
	}
	c.done[n] = out
	return out
}

func (c *crash) dir(d *dirNode) *dirNode {
	names := maps.Clone(d.durable)
	for _, op := range d.ops {
		if c.keep() >= 0.5 {
			nameOpOn(names, op)
		}
	}
	out := newDirNode()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := c.node(names[name])
		out.names[name] = n
		out.durable[name] = n
	}
	return out
}

func (c *crash) file(n *fileNode) *fileNode {
	out := newFileNode()
	out.size, out.pages = n.durableSize, slices.Clone(n.durable)
	if len(n.dirty) > 0 || n.size != n.durableSize {
		switch k := c.keep(); {
		case k >= 2.0/3:
			out.size = n.size
			for _, i := range slices.Sorted(maps.Keys(n.dirty)) {
				out.setPage(i, pageOf(n.pages, i))
			}
		case k >= 1.0/3:
			c.tear(n, out)
		}
	}
	out.trim()
	out.durableSize, out.durable = out.size, slices.Clone(out.pages)
	out.epoch, n.epoch = new(epoch), new(epoch) // from now on all these pages are shared
	return out
}

// tear mixes the sectors of the dirty pages, and chooses a size.
func (c *crash) tear(n, out *fileNode) {
	for _, i := range slices.Sorted(maps.Keys(n.dirty)) {
		oldPage, newPage := pageOf(n.durable, i), pageOf(n.pages, i)
		mixed := &page{}
		if oldPage != nil {
			mixed.b = oldPage.b
		}
		for s := 0; s < pageBytes; s += sectorBytes {
			switch {
			case c.keep() < 0.5:
			case newPage == nil:
				clear(mixed.b[s : s+sectorBytes])
			default:
				copy(mixed.b[s:s+sectorBytes], newPage.b[s:])
			}
		}
		out.setPage(i, mixed)
	}
	lo, hi := min(n.size, n.durableSize), max(n.size, n.durableSize)
	switch k := c.keep(); {
	case k >= 0.5:
		out.size = n.size
	case k >= 0.25:
		out.size = lo + (hi-lo)/sectorBytes/2*sectorBytes
	}
}

func (n *fileNode) setPage(i int, p *page) {
	for len(n.pages) <= i {
		n.pages = append(n.pages, nil)
	}
	n.pages[i] = p
}

// trim clears everything beyond the size, so that growing shows zeros.
func (n *fileNode) trim() {
	keep := int((n.size + pageBytes - 1) / pageBytes)
	n.pages = n.pages[:min(keep, len(n.pages))]
	if o := int(n.size % pageBytes); o > 0 && keep <= len(n.pages) && n.pages[keep-1] != nil {
		clear(n.writable(keep - 1).b[o:])
		clear(n.dirty)
	}
}
