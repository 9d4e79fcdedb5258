package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// checkReaders is how many objects are checked at once. Each may take 17 MiB.
	checkReaders = 2
	// maxDamages bounds how many damaged objects a report names.
	maxDamages = 1000
)

// CheckOptions configure Check.
type CheckOptions struct {
	// Repair uploads damaged and missing objects again, if this device has the data.
	Repair bool
	// Progress, if not nil, is called with the totals read so far, one call at a time. It must not
	// block.
	Progress func(objects int, bytes int64)
}

// CheckReport is the result of Check.
type CheckReport struct {
	Objects int
	Bytes   int64
	// Damaged are the objects that are damaged, or missing though named. More counts the further
	// ones, which are not listed.
	Damaged []DamagedObject
	More    int
	// Newer are objects of a newer version, as their sealed content says, or objects sealed with an
	// unknown key. They are left as they are.
	Newer []DamagedObject
	// Repaired reports that a new epoch replaces the damaged objects.
	Repaired bool
	// Missing counts the pieces of values that are neither here nor in the bucket; other devices
	// may have them, and send them when they sync.
	Missing int
}

// DamagedObject is an object and what is wrong with it.
type DamagedObject struct {
	Name string
	Err  error
}

// Check reads and verifies the present epoch of the page and all objects that it names: the
// checkpoint with its runs, the entries, packs piece by piece, and differences. So it also finds
// missing objects. It believes damage only after several reads. Sync goes on meanwhile.
//
// With Repair, and if there is something to repair, the page then does what Reupload does. Before
// that it fetches the readable pieces of damaged packs and deletes these packs, so that the new
// epoch does not name them and all devices send what they have of them.
//
// Errors: those of Sync; the report then has the findings so far. Damage is not an error.
func (p *Page) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	c := &checkRun{p: p, o: o, report: &CheckReport{}, named: map[string]checked{}}
	err := p.call(ctx, "", func(ctx context.Context) error {
		if err := c.run(ctx); err != nil {
			return err
		}
		if o.Repair && len(c.report.Damaged) > 0 {
			if err := p.reupload(ctx, c.drop); err != nil {
				return fmt.Errorf("upload again what is damaged: %w", err)
			}
			c.report.Repaired = true
		}
		return p.store.MissingPieces(ctx, func(object.Digest) error { c.report.Missing++; return nil })
	})
	return c.report, err
}

// checkRun is a run of Check.
type checkRun struct {
	p  *Page
	o  CheckOptions
	at epoch.Position
	st *replica.State

	// own is the epoch of the page, once it was read and verified.
	own *epoch.Proposal

	mu     sync.Mutex
	report *CheckReport       // guarded by mu, as all that follow
	bad    []string           // names of all damaged or missing objects
	named  map[string]checked // packs and differences to check, by name
}

// checked is an object to check. read checks it, and returns how many bytes it has read.
type checked struct {
	name string
	read func(ctx context.Context) (int64, error)
}

func (c *checkRun) run(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	for _, find := range []func(context.Context) ([]checked, error){c.epochs, c.ofEpoch, c.stored} {
		all, err := find(ctx)
		if err == nil {
			err = bucket.InParallel(ctx, checkReaders, len(all), func(ctx context.Context, i int) error { return c.object(ctx, all[i]) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin reads the log to its end, and notes the packs and differences that the page has recorded.
// So these are checked even if the objects that name them are unreadable.
func (c *checkRun) begin(ctx context.Context) error {
	p := c.p
	held, err := p.lock(ctx, 0)
	if err != nil {
		return err
	}
	defer p.turn.Give()
	if err := p.begin(held); err != nil {
		return err
	}
	_, err = p.ses.log.CatchUp(held)
	if c.at = p.ses.log.Position(); err != nil && !(isDamage(err) && c.at.Joined()) { // the check reports the damage
		return p.explain(held, err)
	}
	c.st = p.rep.Load().State()
	for i := range c.st.Manifest {
		c.note(&c.st.Manifest[i])
	}
	if c.st.Header != nil {
		for _, snap := range c.st.Header.Snapshots {
			c.wants(snap.Diff.Epoch, snap.Diff.Pack, true)
		}
	}
	return nil
}

// object checks an object until it is good, or was bad so often that the damage is believed.
func (c *checkRun) object(ctx context.Context, o checked) error {
	var err error
	var n, all int64
	for range minReads {
		n, err = o.read(ctx)
		if all += n; err == nil || !isDamage(err) {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, base.ErrNotFound):
		c.damaged(o.name, fmt.Errorf("it is not there: %w", base.ErrGone))
	case errors.Is(err, base.ErrUnsupported), errors.Is(err, seal.ErrUnknownKey):
		if len(c.report.Newer) < maxDamages {
			c.report.Newer = append(c.report.Newer, DamagedObject{Name: o.name, Err: err})
		}
	case err != nil && !isDamage(err):
		return fmt.Errorf("read object %s: %w", o.name, err)
	case err != nil:
		c.damaged(o.name, err)
	}
	c.report.Objects++
	c.report.Bytes += all
	if c.o.Progress != nil {
		c.o.Progress(c.report.Objects, c.report.Bytes)
	}
	return nil
}

// isDamage reports whether err means that an object has other bytes than its writer put there.
func isDamage(err error) bool { return errors.Is(err, base.ErrCorrupt) }

// damaged records an object. The caller has mu.
func (c *checkRun) damaged(name string, err error) {
	c.bad = append(c.bad, name)
	if len(c.report.Damaged) == maxDamages {
		c.report.More++
		return
	}
	c.report.Damaged = append(c.report.Damaged, DamagedObject{Name: name, Err: err})
}

// single returns a check of an object that is read whole and opened with open.
func (c *checkRun) single(name string, limit int64, open func(ctx context.Context, stored []byte) error) checked {
	return checked{name, func(ctx context.Context) (int64, error) {
		stored, err := readAll(ctx, c.p.b, name, limit)
		if err == nil {
			err = open(ctx, stored)
		}
		return int64(len(stored)), err
	}}
}

// framed returns a check of an object, which is read to its end.
func (c *checkRun) framed(name string, label seal.Label, sum *seal.Sum) checked {
	return checked{name, func(ctx context.Context) (n int64, err error) {
		o, err := c.p.b.Get(ctx, name, 0, -1)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, o.Body.Close()) }()
		stream, err := c.p.s.sealer.NewStream(o.Body, o.Size, label, sum)
		if err != nil {
			return 0, err
		}
		return io.Copy(io.Discard, stream)
	}}
}

// epochs returns the page's own epoch, even if it is not listed, those after it, and the
// announcement of the page, which must exist once the page has a log. Nothing needs an earlier
// epoch: a device that is in a damaged one enters the newest.
func (c *checkRun) epochs(ctx context.Context) (all []checked, err error) {
	n := c.p.names
	names := map[string]uint64{n.Epoch(c.at.K): c.at.K}
	err = bucket.Each(ctx, c.p.b, n.Epoch(c.at.K), n.Epochs(), func(info bucket.Info) bool {
		if name, ok := n.Parse(info.Name); ok {
			names[info.Name] = name.Number
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the epochs: %w", err)
	}
	if c.at.Number > 0 {
		name := wire.AnnouncementName(c.p.s.o.Keyring, c.p.o.Ledger, c.p.store.Page())
		all = append(all, c.single(name, maxAnnouncementBytes, func(_ context.Context, stored []byte) error {
			_, err := wire.OpenAnnouncement(c.p.s.sealer, name, stored)
			return err
		}))
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, c.single(name, wire.MaxEntryBytes, func(_ context.Context, stored []byte) error {
			x, err := wire.OpenEpoch(c.p.s.sealer, n, stored)
			switch {
			case err != nil || names[name] != c.at.K:
				return err
			case x.ID != c.at.Epoch:
				return &base.CorruptError{Where: "bucket", Key: name, Want: "the epoch that the device has entered", Got: "another one"}
			}
			c.own = x
			return nil
		}))
	}
	return all, nil
}

// ofEpoch returns the checkpoint of the page's epoch, the runs in its header, and the entries: all
// up to the position, those that the bucket lists after it, and the one where a hole begins.
func (c *checkRun) ofEpoch(ctx context.Context) (all []checked, err error) {
	n, e := c.p.names, c.at.Epoch
	if x := c.own; x != nil && x.Checkpoint != (epoch.ID{}) {
		all = append(all, c.framed(n.Checkpoint(x.ID, x.Checkpoint), n.CheckpointLabel(x.ID, x.Checkpoint), (*seal.Sum)(&x.CheckpointHash)))
	}
	if c.st.Header != nil {
		for _, r := range c.st.Header.Runs {
			all = append(all, c.framed(n.Checkpoint(r.Epoch, r.ID), n.RunLabel(r.Epoch, r.ID), (*seal.Sum)(&r.Hash)))
		}
	}
	from := c.at.Number - c.st.Entries
	numbers := map[uint64]bool{}
	for number := from + 1; number <= c.at.Number; number++ {
		numbers[number] = true
	}
	err = bucket.Each(ctx, c.p.b, n.Entry(e, from), n.Log(e), func(info bucket.Info) bool {
		if name, ok := n.Parse(info.Name); ok {
			numbers[name.Number] = true
			numbers[min(name.Number, c.at.Number+1)] = true
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the log: %w", err)
	}
	for _, number := range slices.Sorted(maps.Keys(numbers)) {
		all = append(all, c.single(n.Entry(e, number), wire.MaxEntryBytes, func(ctx context.Context, stored []byte) error {
			entry, err := wire.OpenEntry(c.p.s.sealer, n, e, number, stored)
			if err == nil {
				err = c.body(ctx, entry)
			}
			return err
		}))
	}
	return all, nil
}

// stored returns the packs and differences that the page and the entries name.
func (c *checkRun) stored(context.Context) (all []checked, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.named)) {
		all = append(all, c.named[name])
	}
	return all, nil
}

// note records the objects that a record names. A pack without pieces is a difference.
func (c *checkRun) note(r wire.Record) {
	switch r := r.(type) {
	case *wire.Pack:
		if !r.Dropped {
			c.wants(r.Epoch, r.ID, r.Pieces == 0)
		}
	case *wire.Commit:
		if at := r.Diff.Place; at != nil {
			c.wants(at.Epoch, at.Pack, true)
		}
	}
}

func (c *checkRun) wants(e, id epoch.ID, diff bool) {
	name := c.p.names.Pack(e, id)
	o := checked{name, func(ctx context.Context) (int64, error) {
		r, err := pack.OpenWhole(ctx, c.p.b, c.p.s.sealer, c.p.names, wire.Pack{Epoch: e, ID: id})
		if err != nil {
			return 0, err
		}
		defer r.Close()
		return int64(r.Ref().Bytes), r.Each(ctx, func(storage.PlacedPiece, []byte) error { return nil })
	}}
	if diff {
		o = c.framed(name, c.p.names.DiffLabel(e, id), nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named[name] = o
}

// body reads the body of an entry.
func (c *checkRun) body(ctx context.Context, e *wire.Entry) error {
	if e.Closing != nil {
		return nil
	}
	for rec, err := range c.p.rep.Load().Body(ctx, e) {
		if err != nil {
			return err
		}
		c.note(rec)
	}
	return nil
}

// drop fetches the readable pieces of damaged packs and deletes these packs, so that a renewal does
// not name them. It deletes a damaged announcement, since the renewal puts another only where there
// is none. Other damaged objects stay: the renewal names none of them, and a device that is still
// in a damaged epoch would take a missing one for a bucket that was rolled back.
func (c *checkRun) drop(ctx context.Context) error {
	if c.p.isBare() {
		return nil
	}
	packs := map[epoch.ID]bool{}
	useless := map[string]bool{wire.AnnouncementName(c.p.s.o.Keyring, c.p.o.Ledger, c.p.store.Page()): true}
	for _, name := range c.bad {
		if at, _ := c.p.names.Parse(name); at.Kind == wire.KindPack {
			packs[at.ID], useless[name] = true, true
		}
	}
	if err := c.salvage(ctx, packs); err != nil {
		return err
	}
	for _, name := range c.bad {
		if !useless[name] {
			continue
		}
		if err := c.p.b.Delete(ctx, name); err != nil {
			return fmt.Errorf("delete damaged object %s: %w", name, err)
		}
	}
	return nil
}

// salvage fetches pieces that are not here from damaged packs, as far as the packs are readable.
func (c *checkRun) salvage(ctx context.Context, packs map[epoch.ID]bool) error {
	if len(packs) == 0 {
		return nil
	}
	placed, err := c.p.store.PlacedIn(ctx, func(at storage.CloudPlace) bool { return at.Entry == 0 && packs[epoch.ID(at.Pack)] })
	if err != nil {
		return fmt.Errorf("look what stands in damaged packs: %w", err)
	}
	ds := make([]object.Digest, len(placed))
	for i := range placed {
		ds[i] = placed[i].Digest
	}
	if err := c.p.rep.Load().Salvage(ctx, ds); err != nil {
		return fmt.Errorf("fetch what can be read of damaged packs: %w", err)
	}
	return nil
}
