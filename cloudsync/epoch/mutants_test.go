package epoch_test

import (
	"flag"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// mutant leaves out one rule of the protocol. The model has to find a history in which that does
// harm.
type mutant struct {
	rule  string
	leave func(r *rules)
	// where is the scenario in which the model finds it.
	where string
}

func mutants() []mutant {
	flagged := func(f func(r *rules) *bool) func(r *rules) { return func(r *rules) { *f(r) = true } }
	return []mutant{
		{"an entry that was created a day after the last look is read after another look", func(r *rules) {
			r.read = func(p epoch.Position, e epoch.Reading) epoch.ReadVerdict {
				p.Looked = e.Created
				return p.Read(e)
			}
		}, "behind a deletion"},
		{"an own entry that was created a day after the last look does not count before another look", func(r *rules) {
			r.put = func(_ epoch.Position, stored bool, _ epoch.Time) bool { return stored }
		}, "behind a deletion"},
		{"an entry carries the hash of the one before", func(r *rules) {
			r.read = func(p epoch.Position, e epoch.Reading) epoch.ReadVerdict {
				if e.Found {
					e.Previous = p.Hash
				}
				return p.Read(e)
			}
		}, "disk: lost beside a hole"},
		{"an entry that is missing below another one is damage", func(r *rules) {
			r.read = func(p epoch.Position, e epoch.Reading) epoch.ReadVerdict {
				e.Later = false
				return p.Read(e)
			}
		}, "disk: lost with the only one who read behind a hole"},
		{"a device that reads a closing entry helps", func(r *rules) {
			r.read = func(p epoch.Position, e epoch.Reading) epoch.ReadVerdict {
				if v := p.Read(e); v != epoch.Help {
					return v
				}
				return epoch.End
			}
		}, "crash"},
		{"a renewal takes the number behind the greatest in the bucket", func(r *rules) {
			r.help = func(p epoch.Position, x *epoch.Proposal, l epoch.Looked, joinable bool) (epoch.TurnVerdict, uint64) {
				v, n := help(p, x, l, joinable)
				if v == epoch.PutEpoch && x.Kind == epoch.Renewal {
					n = p.K + 1
				}
				return v, n
			}
		}, "beside a deletion, lost checkpoint"},
		{"a newest epoch that can be joined makes a proposal void", func(r *rules) {
			r.help = func(p epoch.Position, x *epoch.Proposal, l epoch.Looked, _ bool) (epoch.TurnVerdict, uint64) {
				if x.Kind == epoch.Cut {
					return epoch.PutEpoch, l.Behind()
				}
				return help(p, x, l, false)
			}
		}, "disk: lost beside a hole"},
		{"a commit that the epoch does not list is sent", func(r *rules) {
			r.join = func(g epoch.Graph, memory epoch.Set, s epoch.State) epoch.Joined {
				s.Gone = s.Gone.Union(g.Set().Without(s.Kept.Set()))
				return epoch.Join(g, memory, s)
			}
		}, "behind a deletion"},
		{"a commit that the epoch lists is given up", func(r *rules) {
			r.join = func(g epoch.Graph, memory epoch.Set, s epoch.State) epoch.Joined {
				gone := s.Gone
				s.Gone = nil
				j := epoch.Join(g, memory, s)
				j.Memory = j.Memory.Union(gone)
				j.Send = j.Memory.Without(gone)
				return j
			}
		}, "erase, rolled back in the midst"},
		{"what was given up in a lost lineage is listed again", func(r *rules) {
			r.join = func(g epoch.Graph, memory epoch.Set, s epoch.State) epoch.Joined {
				j := epoch.Join(g, memory, s)
				j.Send = nil
				return j
			}
		}, "behind two cuts, lost epochs"},
		{"unsynced commits on what is given up are merged with the true base", func(r *rules) {
			r.join = func(g epoch.Graph, memory epoch.Set, s epoch.State) epoch.Joined {
				j := epoch.Join(g, memory, s)
				j.Wait, j.Graph = false, j.View
				return j
			}
		}, "unsynced beside a cut"},
		{"the head of an epoch descends from all that it gives up", flagged(func(r *rules) *bool { return &r.noEdge }), "transaction behind a cut"},
		{"given-up commits stay below unsynced and pinned ones", flagged(func(r *rules) *bool { return &r.noneHeld }), "unsynced beside a cut"},
		{"heads of which no base is missing are merged first", flagged(func(r *rules) *bool { return &r.anyPair }), "transaction on a kept commit behind a cut"},
		{"a cut begins while the log has one head", flagged(func(r *rules) *bool { return &r.anyHeads }), "transaction beside two heads"},
		{"a cut keeps the bases of merges", func(r *rules) {
			r.keep = func(s epoch.State, _ epoch.Time, erase epoch.Set) epoch.Set {
				keep := s.Heads()
				for _, t := range s.Tags {
					keep = keep.Union(epoch.Set{t.Commit})
				}
				return keep.Without(erase)
			}
		}, "transactions on tagged commits behind a cut"},
		{"a renewal honours erasures of all lineages", flagged(func(r *rules) *bool { return &r.noErased }), "erase, rolled back in the midst"},
		{"a renewal lists all that was given up before", func(r *rules) {
			r.renew = func(s epoch.State, id epoch.ID, p epoch.Position, l epoch.Looked, erased, send epoch.Set, packs []epoch.ID) (epoch.Proposal, epoch.State) {
				x, next := renewal(s, id, p, l, erased, send, packs)
				next.Gone = erased
				return x, next
			}
		}, "behind a cut that gives two up, lost epochs"},
		{"a renewal that lacks a head lists nothing as given up", func(r *rules) {
			r.renew = func(s epoch.State, id epoch.ID, p epoch.Position, l epoch.Looked, erased, send epoch.Set, packs []epoch.ID) (epoch.Proposal, epoch.State) {
				x, next := renewal(s, id, p, l, erased, send, packs)
				next.Gone = s.Gone.Union(erased)
				return x, next
			}
		}, "rolled back to a cut, an entry lost"},
		{"a renewal asks again what was erased when there is another epoch", func(r *rules) {
			r.renew = func(s epoch.State, id epoch.ID, p epoch.Position, l epoch.Looked, erased, send epoch.Set, packs []epoch.ID) (epoch.Proposal, epoch.State) {
				x, next := renewal(s, id, p, l, erased, send, packs)
				x.Behind = 1000
				return x, next
			}
		}, "erase, rolled back in the midst"},
		{"an epoch of a deleted page that is there already is entered", func(r *rules) {
			r.look = func(p epoch.Position, l epoch.Looked) epoch.LookVerdict {
				l.Deleted = false
				return p.Look(l)
			}
		}, "deletion of the page, wiped"},
		{"an epoch that is lost while a device is in it is renewed", func(r *rules) {
			r.look = func(p epoch.Position, l epoch.Looked) epoch.LookVerdict {
				if v := p.Look(l); v != epoch.Empty || !p.Joined() {
					return v
				}
				return epoch.Current
			}
		}, "lost epochs"},
		{"nothing is deleted for a month", func(r *rules) {
			r.settled = func([]epoch.Began, epoch.Time) int { return 0 }
		}, "long bodies beside a cut"},
		{"what the manifest names is not deleted", func(r *rules) {
			r.may = func(d *epoch.Deletion, o epoch.Object) bool {
				c := *d
				c.Named = nil
				return c.May(o)
			}
		}, "beside a deletion"},
		{"what a later epoch was the first not to name stays for a month from then on", flagged(func(r *rules) *bool { return &r.ownNames }), "refs: two cuts in a month"},
		{"what is in another directory and newer than the settled epoch stays", func(r *rules) {
			r.may = func(d *epoch.Deletion, o epoch.Object) bool {
				o.Created = 1
				return d.May(o)
			}
		}, "behind a deletion"},
		{"a deleted page stays deleted", func(r *rules) {
			r.look = func(p epoch.Position, l epoch.Looked) epoch.LookVerdict {
				p.Deleted = false
				return p.Look(l)
			}
		}, "deletion of the page, wiped"},
		{"pending packs are dropped by a join", flagged(func(r *rules) *bool { return &r.keepPending }), "long bodies"},
		{"an uploaded body is dropped by a join", flagged(func(r *rules) *bool { return &r.keepLong }), "long bodies beside a cut"},
		{"places outside the manifest are forgotten", flagged(func(r *rules) *bool { return &r.keepPlaces }), "behind a deletion"},
		{"after a join all unsynced commits go up in one entry", flagged(func(r *rules) *bool { return &r.oneByOne }), "gap: commits beside each other"},
		{"the epoch object decides, and not the closing entry", flagged(func(r *rules) *bool { return &r.closingDecides }), "deletion of the page"},
		{"what a new epoch needs is written into its own directory", flagged(func(r *rules) *bool { return &r.oldDir }), "beside a deletion, lost checkpoint"},
		{"what stands behind a hole is adopted", flagged(func(r *rules) *bool { return &r.noAdoption }), "disk: lost beside a hole"},
		{"a renewal from another lineage names no packs of its own", flagged(func(r *rules) *bool { return &r.namesAll }), "beside a deletion, lost checkpoint"},
	}
}

var everywhere = flag.Bool("everywhere", false, "look for mutants in all scenarios, and print where they are found")

// tries is how many times as many ways are gone as usual before a mutant counts as not found.
const tries = 100

// TestEachRuleIsNeeded: the model catches a device that leaves a rule out.
func TestEachRuleIsNeeded(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			found := false
			for i, s := range scenarios() {
				if s.name != m.where && !*everywhere {
					continue
				}
				r := honest()
				m.leave(r)
				x := s.search(r, max(*states, 4000), 5)
				// Some ways that do harm are rare: it is looked for until one is found, whatever
				// the seed.
				for n := uint64(0); x.wrong == "" && n < tries; n++ {
					x = s.walk(r, *seed+uint64(i)+n<<32, max(*ways, 40))
					if *everywhere {
						break
					}
				}
				if x.wrong != "" {
					found = true
					t.Logf("found in %q after %d states: %s", s.name, x.states, x.wrong)
					if *everywhere {
						continue
					}
					break
				}
			}
			if !found {
				t.Errorf("not found")
			}
		})
	}
}
