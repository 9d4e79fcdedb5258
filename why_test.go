package ledger_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
)

// manualPage returns a page in memory whose heads are merged when the test asks for it.
func manualPage(t testing.TB) *ledger.Page {
	t.Helper()
	var o ledger.Options
	o.ManualMerge = true
	return memoryPage(t, o)
}

// putOn commits pairs of keys and values on a base; "-" in front of a key deletes it.
func putOn(t testing.TB, p *ledger.Page, base ledger.CommitID, pairs ...string) ledger.CommitID {
	t.Helper()
	tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base})
	must(t, err)
	for i := 0; i < len(pairs); i += 2 {
		if k := pairs[i]; k[0] == '-' {
			must(t, tx.Delete(t.Context(), []byte(k[1:])))
		} else {
			must(t, tx.Put(t.Context(), []byte(k), []byte(pairs[i+1])))
		}
	}
	id, err := tx.Commit(t.Context())
	must(t, err)
	return id
}

func mergeAll(t testing.TB, p *ledger.Page) ledger.CommitID {
	t.Helper()
	merged, err := p.Merge(t.Context())
	must(t, err)
	if len(merged) == 0 {
		t.Fatal("there was nothing to merge")
	}
	return merged[len(merged)-1].Commit.ID
}

// step is a ledger.Step in short.
type step struct {
	Commit        ledger.CommitID
	Value         string
	Outcome, Rule string
	Lost          []lostValue
}

type lostValue struct {
	Parent, Writer ledger.CommitID
	Value          string
}

// absent is what valueOf gives where there is no entry.
const absent = "absent"

func valueUnder(t testing.TB, e *ledger.Entry, key string) string {
	t.Helper()
	if e != nil && string(e.Key) != key {
		t.Errorf("entry of key %q, want %q", e.Key, key)
	}
	return valueOf(t, e)
}

func why(t testing.TB, p *ledger.Page, at ledger.CommitID, key string) []step {
	t.Helper()
	var steps []step
	for s, err := range p.Why(t.Context(), at, []byte(key)) {
		must(t, err)
		short := step{Commit: s.Commit.ID, Value: valueUnder(t, s.Entry, key), Outcome: s.Outcome, Rule: s.Rule}
		for _, l := range s.Lost {
			v := lostValue{Value: valueUnder(t, l.Entry, key)}
			if l.Parent != nil {
				v.Parent = l.Parent.ID
			}
			if l.Writer != nil {
				v.Writer = l.Writer.ID
			}
			short.Lost = append(short.Lost, v)
		}
		steps = append(steps, short)
	}
	return steps
}

func wantSteps(t testing.TB, p *ledger.Page, at ledger.CommitID, key string, want ...step) {
	t.Helper()
	if diff := cmp.Diff(want, why(t, p, at, key)); diff != "" {
		t.Errorf("why %q (-want +got):\n%s", key, diff)
	}
}

func TestWhyOfAChain(t *testing.T) {
	p := manualPage(t)
	long := string(pseudo(1, 100_000))
	a := put(t, p, "k", "1", "long", long)
	b := put(t, p, "other", "1")
	c := put(t, p, "k", "2", "long", "short")
	d := update(t, p, func(tx *ledger.Tx) error { return tx.Delete(t.Context(), []byte("other")) })
	wantSteps(t, p, ledger.CommitID{}, "k", step{Commit: c, Value: "2", Lost: []lostValue{{b, a, "1"}}})
	wantSteps(t, p, b, "k", step{Commit: a, Value: "1"})
	wantSteps(t, p, d, "long", step{Commit: c, Value: "short", Lost: []lostValue{{b, a, long}}})
	wantSteps(t, p, d, "other", step{Commit: d, Value: absent, Lost: []lostValue{{c, b, "1"}}})
	wantSteps(t, p, d, "never")
	wantSteps(t, p, firstCommit(t, p), "k")
}

func TestWhyOfMerges(t *testing.T) {
	p := manualPage(t)
	base := put(t, p, "color", "red", "same", "1")
	blue := putOn(t, p, base, "color", "blue", "only", "here")
	green := putOn(t, p, base, "color", "green")
	merged := mergeAll(t, p)
	after := put(t, p, "other", "1")
	wantSteps(t, p, after, "color",
		step{Commit: merged, Value: "green", Outcome: "right", Rule: lastOneWins(t, p, merged), Lost: []lostValue{{blue, blue, "blue"}}},
		step{Commit: green, Value: "green", Lost: []lostValue{{base, base, "red"}}})
	wantSteps(t, p, ledger.CommitID{}, "only",
		step{Commit: merged, Value: "here", Outcome: "left"},
		step{Commit: blue, Value: "here"})
	wantSteps(t, p, merged, "same", step{Commit: base, Value: "1"})

	// The deletion that wins.
	gone := putOn(t, p, after, "color", "yellow")
	deleted := putOn(t, p, after, "-color", "")
	second := mergeAll(t, p)
	wantSteps(t, p, second, "color",
		step{Commit: second, Value: absent, Outcome: "right", Rule: lastOneWins(t, p, second), Lost: []lostValue{{gone, gone, "yellow"}}},
		step{Commit: deleted, Value: absent, Lost: []lostValue{{after, green, "green"}}})
}

// lastOneWins returns the rule that a merge has recorded for its only conflict.
func lastOneWins(t testing.TB, p *ledger.Page, merge ledger.CommitID) string {
	t.Helper()
	var rules []string
	for d, err := range p.Conflicts(t.Context(), merge, nil) {
		must(t, err)
		rules = append(rules, d.Rule)
	}
	if len(rules) != 1 || rules[0] == "" {
		t.Fatalf("rules %q, want one", rules)
	}
	return rules[0]
}

func TestWhyRefuses(t *testing.T) {
	p := manualPage(t)
	put(t, p, "k", "v")
	for _, err := range p.Why(t.Context(), ledger.CommitID{1}, []byte("k")) {
		wantErr(t, err, ledger.ErrNotFound)
	}
	closeIt(t, p)
	n := 0
	for _, err := range p.Why(t.Context(), ledger.CommitID{}, []byte("k")) {
		n++
		wantErr(t, err, ledger.ErrClosed)
	}
	if n != 1 {
		t.Errorf("%d elements", n)
	}
}

// TestWhyKeepsItsKey: the key may change after the call.
func TestWhyKeepsItsKey(t *testing.T) {
	p := manualPage(t)
	var last ledger.CommitID
	for i := range 3 {
		last = put(t, p, "k", fmt.Sprint(i))
	}
	k := []byte("k")
	seq := p.Why(t.Context(), last, k)
	k[0] = 'x'
	n := 0
	for s, err := range seq {
		must(t, err)
		if n++; string(s.Entry.Key) != "k" {
			t.Errorf("key %q", s.Entry.Key)
		}
	}
	if n != 1 {
		t.Errorf("%d steps", n)
	}
}
