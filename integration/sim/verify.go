package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/storage"
)

// heal delivers all commits to all devices, and lets them merge until nothing changes. It returns
// the number of rounds (S4, S5).
func (w *World) heal(ctx context.Context) (int, error) {
	var all set
	for _, d := range w.devices {
		all = all.or(d.has)
	}
	heads, merges := len(w.graph.bases(all)), w.graph.merges
	limit := 2*len(w.devices) + 2
	round := 1
	for ; ; round++ {
		if round > limit {
			return round, fmt.Errorf("S4: after %d rounds device 0 has heads %s, device 1 %s", limit, nodeIDs(w.devices[0].heads), nodeIDs(w.devices[1].heads))
		}
		moved, err := w.round(ctx)
		if err != nil {
			return round, fmt.Errorf("round %d: %w", round, err)
		}
		w.trace("round %d: %d commits were delivered or made", round, moved)
		if moved == 0 {
			break
		}
	}
	if made := w.graph.merges - merges; w.h.agrees() && !w.h.Gossip && made > heads+len(w.devices) {
		return round, fmt.Errorf("S5: %d heads on %d devices took %d merges", heads, len(w.devices), made)
	}
	return round, nil
}

// round lets every device receive from every other, and merge. It returns the number of commits
// delivered or merged.
func (w *World) round(ctx context.Context) (int, error) {
	moved := 0
	mergeAll := func(d *device) error {
		if len(d.heads) == 1 {
			return nil
		}
		moved += len(d.heads) - 1
		w.trace("device %d merges %s", d.index, nodeIDs(d.heads))
		return d.merge(ctx, d.heads)
	}
	n := len(w.devices)
	for _, pair := range w.rng.Perm(n * n) {
		to, from := w.devices[pair/n], w.devices[pair%n]
		if to == from {
			continue
		}
		got, err := to.deliver(ctx, from, from.heads, w.rng.IntN(4) == 0)
		if moved += got; err == nil && w.h.Gossip {
			err = mergeAll(to)
		}
		if err != nil {
			return moved, err
		}
	}
	for _, i := range w.rng.Perm(n) {
		if err := mergeAll(w.devices[i]); err != nil {
			return moved, err
		}
		if err := w.devices[i].check(); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// verify checks the promises in a healed world.
func (w *World) verify(ctx context.Context) error {
	head := w.devices[0].heads[0]
	for _, d := range w.devices {
		if err := d.check(); err != nil {
			return err
		}
		if len(d.heads) != 1 || d.heads[0] != head {
			return fmt.Errorf("S4: device %d has heads %s, device 0 %s", d.index, nodeIDs(d.heads), head.c.ID.Short())
		}
		if err := d.checkAll(ctx); err != nil {
			return err
		}
		got, err := d.content(ctx, head.c.Root)
		if err != nil {
			return err
		}
		if diff := changed(got, head.content); len(diff) > 0 {
			return fmt.Errorf("S4: device %d has another %s than the model", d.index, diff[0])
		}
	}
	for _, n := range w.graph.nodes {
		if !head.above.has(n.index) && !w.excused.has(n.index) {
			return fmt.Errorf("S6: commit %s is no ancestor of head %s", n.c.ID.Short(), head.c.ID.Short())
		}
	}
	if !w.forgetful {
		if err := w.verifyEdits(head); err != nil {
			return err
		}
	}
	if w.cloud != nil {
		if err := w.verifyCloud(ctx, head); err != nil {
			return err
		}
	}
	if w.h.Sweep {
		if err := w.verifySwept(ctx); err != nil {
			return err
		}
	}
	if w.o.Check {
		return w.checkStores(ctx)
	}
	return nil
}

func (w *World) checkStores(ctx context.Context) error {
	for _, d := range w.devices {
		r, err := d.s.Check(ctx, storage.CheckOptions{})
		if err != nil {
			return fmt.Errorf("S8: device %d: %w", d.index, err)
		}
		if !r.Clean() {
			return fmt.Errorf("S8: device %d: %w", d.index, errors.Join(r.Problems...))
		}
	}
	return nil
}

// write is an edit of a key.
type write struct {
	n          *node
	was, value string
	latest     bool // no later edit of the key descends from it
}

// verifyEdits compares the final content with the edits alone (S7).
func (w *World) verifyEdits(head *node) error {
	edits := map[string][]*write{}
	for _, n := range w.graph.nodes {
		if !head.above.has(n.index) {
			continue
		}
		for k := range n.writes {
			for _, o := range edits[k] {
				if n.above.has(o.n.index) {
					o.latest = false
				}
			}
			edits[k] = append(edits[k], &write{n, n.parents[0].value(k), n.value(k), true})
		}
	}
	for _, k := range keys(head.content) {
		if edits[k] == nil {
			return fmt.Errorf("S7: key %s=%q, which nobody wrote", k, short(head.value(k)))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(edits)) {
		ws := edits[k]
		if want := w.missing(k, head.value(k), ws); want != "" {
			for _, o := range ws {
				w.trace("%s: %s wrote %q over %q, latest %t", k, o.n.c.ID.Short(), short(o.value), short(o.was), o.latest)
			}
			return fmt.Errorf("S7: key %s=%q, want %s", k, short(head.value(k)), want)
		}
	}
	return nil
}

// missing returns the value that a key should have instead, or "" if its value is right.
func (w *World) missing(key, got string, ws []*write) string {
	if strings.HasPrefix(key, "m+") {
		return missingMaximum(got, ws)
	}
	switch key[0] {
	case 'c':
		return missingSum(got, ws)
	case 's':
		return missingElement(got, ws, w.graph.criss > 0)
	case 'f', 'r':
		return missingOnly(got, ws)
	case 'm':
		if w.graph.criss > 0 { // the greatest of several bases may have been lowered since
			return missingAny(got, ws)
		}
	}
	return missingWrite(got, ws, (key[0] == 'l' || key[0] == 'z') && w.graph.criss == 0 && !w.graph.back && !w.graph.short, w.graph.criss > 0)
}

func missingSum(got string, ws []*write) string {
	sum := 0
	for _, o := range ws {
		was, _ := strconv.Atoi(o.was)
		is, _ := strconv.Atoi(o.value)
		sum += is - was
	}
	if got != strconv.Itoa(sum) {
		return fmt.Sprintf("the sum %d", sum)
	}
	return ""
}

// missingAny requires the value of any write.
func missingAny(got string, ws []*write) string {
	if !slices.ContainsFunc(ws, func(o *write) bool { return o.value == got }) {
		return "the value of a write"
	}
	return ""
}

func missingMaximum(got string, ws []*write) string {
	most := 0
	for _, o := range ws {
		n, _ := strconv.Atoi(o.value)
		most = max(most, n)
	}
	if got != strconv.Itoa(most) {
		return fmt.Sprintf("the maximum %d", most)
	}
	return ""
}

// missingElement checks each element as if it were a key of its own.
func missingElement(got string, ws []*write, criss bool) string {
	has := elements(got)
	all := map[string]bool{}
	for _, o := range ws {
		for e := range elements(o.value) {
			all[e] = true
		}
	}
	for e := range has {
		if !all[e] {
			return "no " + e
		}
	}
	for e := range all {
		var of []*write
		erased := false
		for _, o := range ws {
			was, is := elements(o.was)[e], elements(o.value)[e]
			if was == is {
				continue
			}
			erased = erased || was
			for _, older := range of {
				if o.n.above.has(older.n.index) {
					older.latest = false
				}
			}
			of = append(of, &write{o.n, strconv.FormatBool(was), strconv.FormatBool(is), true})
		}
		if !erased && !has[e] {
			return "also " + e
		}
		if want := missingWrite(strconv.FormatBool(has[e]), of, false, criss); want != "" {
			return e + ": " + want
		}
	}
	return ""
}

// missingOnly requires the value of the only latest write of a key, when no other write is
// concurrent with it.
func missingOnly(got string, ws []*write) string {
	last := ws[len(ws)-1]
	for _, o := range ws {
		if !last.n.above.has(o.n.index) {
			return ""
		}
	}
	for i, o := range ws[1:] {
		if !o.n.above.has(ws[i].n.index) {
			return ""
		}
	}
	if got != last.value {
		return fmt.Sprintf("%q of the last write", short(last.value))
	}
	return ""
}

// missingWrite requires the value of one of the latest writes of a key: of the only one, or of the
// newest if newest is set. Where values repeat, absence included, only a history without
// criss-cross allows this check. With several bases, each of two devices may have undone a write
// that the other one kept.
func missingWrite(got string, ws []*write, newest, criss bool) string {
	values := map[string]bool{absent: true}
	repeats := false
	var top *write
	one := false
	for _, o := range ws {
		repeats = repeats || values[o.value]
		values[o.value] = true
		if o.latest && o.value == got {
			one = true
		}
		if top == nil || newer(o.n, top.n) {
			top = o
		}
	}
	switch {
	case repeats && criss:
		return ""
	case newest && !repeats && got != top.value:
		return fmt.Sprintf("%q of the newest write", short(top.value))
	case !one:
		return "the value of a write that no other overwrote"
	}
	return ""
}
