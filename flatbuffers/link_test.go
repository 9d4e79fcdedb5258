package flatbuffers_test

import (
	"testing"

	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

func kept(t *testing.T, level int, key string, children ...fb.Child) *fb.Node {
	t.Helper()
	n, err := buildNode(level, []fb.Entry{{Key: []byte(key), Inline: true}}, children)
	if err != nil {
		t.Fatal(err)
	}
	k := &fb.Node{}
	n.KeepIn(k, n.Bytes(), nil)
	return k
}

func TestLinks(t *testing.T) {
	gap := fb.Child{Gap: 1, Digest: object.Sum(object.Node, []byte("child"))}
	a, b, child := kept(t, 1, "a", gap), kept(t, 1, "b", gap), kept(t, 0, "c")
	want := func(n *fb.Node, linked *fb.Node) {
		t.Helper()
		if got := n.Linked(1); got != linked {
			t.Errorf("linked to %p, want %p", got, linked)
		}
	}
	want(a, nil)
	a.Link(1, child)
	want(a, child)
	a.Link(1, child)
	want(a, child)
	b.Link(1, child) // the last one counts
	want(a, nil)
	want(b, child)
	child.Release()
	want(b, nil)
	b.Link(1, child) // it is kept no more
	want(b, nil)

	loose, err := buildNode(1, []fb.Entry{{Key: []byte("a"), Inline: true}}, []fb.Child{gap})
	if err != nil {
		t.Fatal(err)
	}
	loose.Link(1, kept(t, 0, "c")) // itself not kept
	want(loose, nil)
	if a.Linked(-1) != nil || a.Linked(2) != nil {
		t.Error("gaps that do not exist are linked")
	}
}
