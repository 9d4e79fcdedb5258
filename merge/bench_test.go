package merge_test

import (
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/merge"
)

// benchKeys is the size of the page of the benchmarks, benchChanges what each side changes in it.
const (
	benchKeys    = 200_000
	benchChanges = 1000
)

func benchHeads(b *testing.B, both bool) {
	p, l, r := large(b, benchKeys, benchChanges, both)
	b.ReportAllocs()
	for b.Loop() {
		env, _ := p.sealed()
		if _, err := merge.Heads(b.Context(), env, merge.Rules{}, []*commit.Commit{l, r}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeads merges two heads with 1000 changes each, of which none or half are conflicts.
// Compare it with BenchmarkApply:
//
//	go test ./merge -run '^$' -bench 'Heads|Apply' -benchtime 20x
func BenchmarkHeads(b *testing.B) {
	b.Run("one-sided", func(b *testing.B) { benchHeads(b, false) })
	b.Run("conflicts", func(b *testing.B) { benchHeads(b, true) })
}

// BenchmarkApply makes the changes of one side as one transaction would.
func BenchmarkApply(b *testing.B) {
	p, l, r := large(b, benchKeys, benchChanges, false)
	var changes []btree.Change
	for d, err := range btree.Diff(b.Context(), p.tree(p.commits[r.Parents[0]].Root), p.tree(r.Root), nil) {
		if err != nil {
			b.Fatal(err)
		}
		changes = append(changes, btree.Change{Entry: d.Right})
	}
	b.ReportAllocs()
	for b.Loop() {
		env, sink := p.sealed()
		t := btree.Tree{Page: p.page, Source: env.Nodes, Root: l.Root}
		if _, err := t.Apply(b.Context(), sink, func(yield func(btree.Change, error) bool) {
			for _, c := range changes {
				if !yield(c, nil) {
					return
				}
			}
		}); err != nil {
			b.Fatal(err)
		}
	}
}
