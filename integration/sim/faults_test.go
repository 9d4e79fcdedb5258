package sim_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/integration/sim"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// decider decides as a function says.
type decider func(ctx context.Context, p *merge.Pair, c *merge.Conflict) error

// Decide implements merge.Decider.
func (d decider) Decide(ctx context.Context, p *merge.Pair, cs []merge.Conflict) error {
	for i := range cs {
		cs[i].Rule = "fault"
		if err := d(ctx, p, &cs[i]); err != nil {
			return err
		}
	}
	return nil
}

func take(o merge.Outcome) decider {
	return func(_ context.Context, _ *merge.Pair, c *merge.Conflict) error {
		c.Outcome = o
		return nil
	}
}

// TestFaultsAreFound gives devices rules that are not those of the history: a simulator that says
// nothing then proves nothing.
func TestFaultsAreFound(t *testing.T) {
	for _, test := range []struct {
		name   string
		device int // -1: all
		prefix string
		rule   merge.Decider
		want   string
	}{
		{"one device keeps the left side", 1, "l", take(merge.TakeLeft), "S2"},
		{"all keep the right side", -1, "l", take(merge.TakeRight), "S2"},
		{"one device removes what is in conflict", 2, "f", take(merge.TakeNone), "S2"},
		{"counters are merged as maxima", -1, "c", merge.ByValue{Name: "m", Rule: merge.Maximum}, "S2"},
		{"the last one wins in sets", 0, "s", merge.LastOneWins(), "S2"},
		{"a decider is broken", 0, "r", decider(func(context.Context, *merge.Pair, *merge.Conflict) error { return errors.New("broken") }), "broken"},
		{"a decider panics", 0, "r", decider(func(context.Context, *merge.Pair, *merge.Conflict) error { panic("oops") }), "panic: oops"},
		{"a decider answers nothing", 0, "r", decider(func(context.Context, *merge.Pair, *merge.Conflict) error { return nil }), "undecided"},
		{"a decider depends on the device", 1, "l", decider(func(ctx context.Context, p *merge.Pair, c *merge.Conflict) (err error) {
			c.Outcome = merge.TakeNew
			c.New, err = p.Store(ctx, []byte("of device 1"), object.Eager)
			return err
		}), "S2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := sim.Options{Rules: func(device int, r merge.Rules) merge.Rules {
				if test.device >= 0 && device != test.device {
					return r
				}
				rules := []merge.Rule{{Prefix: []byte(test.prefix), Decider: test.rule, All: test.prefix == "c"}}
				for _, old := range r.Rules {
					if string(old.Prefix) != test.prefix {
						rules = append(rules, old)
					}
				}
				return merge.Rules{Rules: rules}
			}}
			const seeds = 60
			for seed := uint64(1); seed <= seeds; seed++ {
				_, err := sim.Run(t.Context(), sim.Generate(seed, steps), o)
				if err == nil {
					continue
				}
				if !strings.Contains(err.Error(), test.want) {
					t.Fatalf("seed %d: %v, want %s", seed, err, test.want)
				}
				h := sim.Minimise(sim.Generate(seed, steps), 1000, func(h sim.History) bool {
					_, err := sim.Run(t.Context(), h, o)
					return err != nil
				})
				t.Logf("seed %d finds it; %d steps on %d devices remain", seed, len(h.Steps), len(h.Devices))
				if len(h.Steps) > 8 {
					t.Errorf("the shortest history is too long:\n%#v", h)
				}
				return
			}
			t.Errorf("%d histories have found nothing", seeds)
		})
	}
}

// TestReplay runs histories twice: equal seeds give equal commits.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		var traces [2]strings.Builder
		for i := range traces {
			res, err := sim.Run(t.Context(), sim.Generate(seed, steps), sim.Options{Trace: func(format string, args ...any) {
				writef(&traces[i], format, args...)
			}})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			writef(&traces[i], "%+v", res)
		}
		if traces[0].String() != traces[1].String() {
			t.Errorf("seed %d ran differently:\n%s\n\n%s", seed, &traces[0], &traces[1])
		}
	}
}
