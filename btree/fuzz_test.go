package btree_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledger/btree"
)

// FuzzTreeApply reads its input as edits: a byte for the key and one for what becomes of it; 0xff
// ends an edit.
func FuzzTreeApply(f *testing.F) {
	f.Add([]byte{1, 1, 2, 1, 3, 1, 0xff, 2, 0, 0xff, 1, 0, 3, 0})
	f.Add([]byte{0, 1, 0xff, 0, 2, 250, 2, 0xff, 0, 0})
	var all []byte
	for i := range 250 {
		all = append(all, byte(i), 1)
	}
	f.Add(append(append(all, 0xff), 17, 0, 130, 0, 131, 3))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 2000 {
			return
		}
		s, m, root := newStore(), model{}, btree.EmptyRoot
		ed := edit{}
		step := func() {
			before, beforeRoot := m, root
			m, root = m.apply(ed), apply(t, s, root, ed)
			checkTree(t, s, root, m)
			if root != build(t, s, m) {
				t.Fatal("apply and build differ")
			}
			s.reset()
			checkDiff(t, s, beforeRoot, root, before, m, nil)
			checkReads(t, s, nil, beforeRoot, root)
			ed = edit{}
		}
		for len(in) > 0 {
			if in[0] == 0xff || len(in) < 2 {
				step()
				in = in[1:]
				continue
			}
			k := keyPool[int(in[0])%len(keyPool)]
			if ed[k] = nil; in[1] != 0 {
				e := inline(k, fmt.Sprint(in[1]))
				ed[k] = &e
			}
			in = in[2:]
		}
		step()
	})
}
