package hostile_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
)

// labelOf returns the label of a framed object that another one names, and false for other objects.
func (g target) labelOf() (l seal.Label, ok bool) {
	names := g.s.target
	n, ok := names.Parse(g.name)
	if !ok {
		return l, false
	}
	switch g.kind {
	case kindBody:
		return names.LongBodyLabel(n.Epoch, n.ID), true
	case kindDiff:
		return names.DiffLabel(n.Epoch, n.ID), true
	case kindCheckpoint:
		return names.CheckpointLabel(n.Epoch, n.ID), true
	case kindRun:
		return names.RunLabel(n.Epoch, n.ID), true
	}
	return l, false
}

// plain returns the plaintext of a framed object.
func (g target) plain(t testing.TB, l seal.Label) []byte {
	t.Helper()
	r, err := seal.NewSealer(g.s.ring, nil).NewStream(bytes.NewReader(g.s.content[g.name]), int64(len(g.s.content[g.name])), l, nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// sealedAs seals a plaintext as a member can who has all keys.
func (g target) sealedAs(t testing.TB, l seal.Label, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := seal.NewSealer(g.s.ring, nil).NewWriter(&out, l, true, nil)
	_, err := w.Write(plain)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestReplacedByAMember has a member with all keys put well-sealed objects into the place of those
// that a device has signed for: the same sealed again, and another one of the kind. A difference,
// as of a snapshot, is held by the tree to which it leads, so the same sealed again is as good.
func TestReplacedByAMember(t *testing.T) {
	noticed, n := map[string]int{}, 0
	for _, in := range targets(t, 2) {
		l, ok := in.labelOf()
		if !ok {
			continue
		}
		own := in.plain(t, l)
		put := func(from string, plain []byte) {
			substitute{in: in, from: from, with: in.sealedAs(t, l, plain)}.strike(t, n, noticed)
			n++
		}
		if in.kind == kindDiff {
			other := bytes.Clone(own)
			other[len(other)/2] ^= 1
			put("another difference", other)
			continue
		}
		put("the same sealed again", own)
		for _, name := range in.s.byKind()[in.kind] {
			from := target{in.s, in.kind, name}
			fl, ok := from.labelOf()
			if ok && name != in.name {
				put(from.String(), from.plain(t, fl))
				break
			}
		}
	}
	t.Logf("%d objects, noticed %v", n, noticed)
	for _, k := range []string{kindBody, kindDiff, kindCheckpoint, kindRun} {
		if noticed[k] == 0 {
			t.Errorf("nothing in place of an object of kind %s was ever noticed", k)
		}
	}
}
