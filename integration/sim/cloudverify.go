package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/mem"
	logwire "github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// healCloud ends all faults, restarts all processes, and syncs all devices until nothing changes.
// It returns the number of rounds (S4, S5, S10).
func (w *World) healCloud(ctx context.Context) (int, error) {
	c := w.cloud
	w.setFaults(mem.Faults{})
	must := c.has
	for _, d := range w.devices {
		d.link.offline = false
		if err := d.reopen(ctx); err != nil {
			return 0, err
		}
		must = must.or(d.has)
	}
	w.excused = w.excused.minus(must)
	if c.torn {
		if err := w.mend(ctx); err != nil {
			return 0, err
		}
	}
	heads, merges := len(w.graph.bases(must)), w.graph.merges
	limit := 2*len(w.devices) + 2
	for round := 1; round <= limit; round++ {
		if err := w.wake(ctx); err != nil {
			return round, err
		}
		was := w.shape()
		for _, i := range w.rng.Perm(len(w.devices)) {
			if err := w.devices[i].healStep(ctx); err != nil {
				return round, fmt.Errorf("round %d: %w", round, err)
			}
		}
		if w.shape() != was {
			continue
		}
		if made := w.graph.merges - merges; w.h.agrees() && !w.forgetful && made > heads+len(w.devices) {
			return round, fmt.Errorf("S5: %d heads on %d devices took %d merges", heads, len(w.devices), made)
		}
		return round, w.rest(ctx)
	}
	return limit, fmt.Errorf("S4: after %d rounds device 0 has heads %s, device 1 %s", limit, nodeIDs(w.devices[0].heads), nodeIDs(w.devices[1].heads))
}

// mend repairs the bucket from one device, if possible one that has commits, and restarts all
// processes.
func (w *World) mend(ctx context.Context) error {
	by := w.devices[w.rng.IntN(len(w.devices))]
	for _, d := range w.devices {
		if by.has.last() <= 0 { // 0 is the first commit
			by = d
		}
	}
	if err := by.reupload(ctx, 0); err != nil {
		return err
	}
	w.cloud.torn = false
	return w.reopenAll(ctx)
}

// wake restarts the processes that have not seen the newest epoch. They would look within a day.
func (w *World) wake(ctx context.Context) error {
	for _, d := range w.devices {
		if newest, err := d.inNewest(ctx); err != nil {
			return err
		} else if !newest {
			if err := d.reopen(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// reopenAll restarts all processes, so that they look at the bucket.
func (w *World) reopenAll(ctx context.Context) error {
	for _, d := range w.devices {
		if err := d.reopen(ctx); err != nil {
			return err
		}
	}
	return nil
}

// healStep syncs a device, which repairs the bucket if necessary.
func (d *device) healStep(ctx context.Context) error {
	result, err := d.sync(ctx, 0)
	if err == nil && (errors.Is(result, cloudsync.ErrBucketReplaced) || errors.Is(result, cloudsync.ErrBucketRolledBack) || errors.Is(result, cloudsync.ErrBucketDamaged)) {
		if err := d.reupload(ctx, 0); err != nil {
			return err
		}
		return d.w.reopenAll(ctx)
	}
	if err == nil && result != nil {
		err = fmt.Errorf("S9: device %d: sync: %w", d.index, result)
	}
	return err
}

// shape describes the state of the world, to detect changes.
func (w *World) shape() string {
	var b strings.Builder
	for _, d := range w.devices {
		fmt.Fprintln(&b, nodeIDs(d.heads))
	}
	for _, name := range w.cloud.b.Names() {
		fmt.Fprintln(&b, name)
	}
	fmt.Fprintln(&b, w.cloud.stats.Reuploads) // all processes were restarted
	return b.String()
}

// rest syncs all devices once more. Each may look once and do nothing else (S10).
func (w *World) rest(ctx context.Context) error {
	was := w.shape()
	for _, d := range w.devices {
		before := d.link.wire.counted()
		if err := d.healStep(ctx); err != nil {
			return fmt.Errorf("at rest: %w", err)
		}
		if asked := d.link.wire.counted().minus(before); asked != (tally{gets: 1}) {
			return fmt.Errorf("S10: device %d asks at rest for %+v", d.index, asked)
		}
	}
	if w.shape() != was {
		return errors.New("S10: the bucket or a device does not come to rest")
	}
	return nil
}

// verifyCloud compares devices and bucket with the promises.
func (w *World) verifyCloud(ctx context.Context, head *node) error {
	clone, err := w.newClone(ctx)
	if err != nil {
		return err
	}
	if err := clone.healStep(ctx); err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	var tags map[string]commit.ID
	for i, d := range w.devices {
		if len(d.heads) != 1 || d.heads[0] != head {
			return fmt.Errorf("S11: device %d has heads %s, want %s", d.index, nodeIDs(d.heads), head.c.ID.Short())
		}
		if err := d.readAll(ctx, head); err != nil {
			return err
		}
		got, err := d.s.Tags(ctx)
		if err != nil {
			return err
		}
		if i == 0 {
			tags = got
		}
		if w.retained { // a device that has given up a commit ignores tags that others have put on it since
			for name, id := range got {
				if !w.cloud.tags[name][id] {
					return fmt.Errorf("S11: device %d has %s at %s, which nobody said", d.index, name, id.Short())
				}
			}
			continue
		}
		if !maps.Equal(got, tags) {
			return fmt.Errorf("S11: device %d has tags %v, device 0 %v", d.index, got, tags)
		}
	}
	for name, id := range tags {
		if !w.cloud.tags[name][id] {
			return fmt.Errorf("S11: %s is %s, which nobody said", name, id.Short())
		}
	}
	return nil
}

// readAll reads the whole head, and compares it with the model (S11).
func (d *device) readAll(ctx context.Context, head *node) error {
	entries := 0
	c := d.tree(d.s, head.c.Root).Cursor()
	ok, err := c.First(ctx)
	for ; ok && err == nil; ok, err = c.Next(ctx) {
		entries++
		e := c.Entry()
		got, err := d.readValue(ctx, &e)
		if (d.w.cloud.lossy || d.w.gaveUpLongAgo(e.Priority == object.Lazy)) && (errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrNeedsFetch)) {
			d.w.cloud.stats.Missing++
			continue
		}
		if err != nil {
			return fmt.Errorf("S11: device %d: value of %s: %w", d.index, e.Key, err)
		}
		d.w.cloud.stats.Read += len(got)
		if got != head.value(string(e.Key)) {
			return fmt.Errorf("S11: device %d has another value of %s than the model", d.index, e.Key)
		}
	}
	if err == nil && entries != len(head.content) {
		err = fmt.Errorf("S11: device %d has %d keys, want %d", d.index, entries, len(head.content))
	}
	if err != nil {
		return err
	}
	if ok, err := d.inBucket(ctx); !ok || err != nil {
		err = errors.Join(err, d.s.LocalPieces(ctx, func(p object.Digest) error { return fmt.Errorf("piece %s is local", p.Short()) }))
		return fmt.Errorf("S11: device %d is not wholly in the bucket: %w", d.index, err)
	}
	return nil
}

func (d *device) readValue(ctx context.Context, e *fb.Entry) (string, error) {
	if e.Inline {
		return string(e.Value), nil
	}
	var b strings.Builder
	b.Grow(int(e.Size))
	_, err := split.NewReader(ctx, d.s, e.Digest, e.Size).WriteTo(&b)
	return b.String(), err
}

// cloudResult returns the counts of the history.
func (w *World) cloudResult() (r CloudResult) {
	if w.cloud == nil {
		return r
	}
	r = w.cloud.stats
	for _, d := range w.devices {
		r.Requests += d.link.wire.counted().total()
	}
	names := logwire.NamesOf(w.cloud.ring, "ledger", w.page)
	for _, name := range w.cloud.b.Names() {
		switch n, _ := names.Parse(name); n.Kind {
		case logwire.KindPack:
			r.Packs++
		case logwire.KindCheckpoint:
			r.Checkpoints++
		}
	}
	return r
}
