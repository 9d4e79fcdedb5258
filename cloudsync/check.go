package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
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

// CheckOptions are those of Check.
type CheckOptions struct {
	// Repair uploads anew what is damaged or missing, as far as this device has it.
	Repair bool
	// Progress, if not nil, is told how much was read, one call at a time. It must not block.
	Progress func(objects int, bytes int64)
}

// CheckReport says what was read, and what is wrong with it.
type CheckReport struct {
	Objects int
	Bytes   int64
	// Damaged are the objects that are damaged, or not there though they should be, of which so
	// many more there are that are not named.
	Damaged []DamagedObject
	More    int
	// Newer are objects of which what is sealed says that a newer version has written it, or that
	// are sealed with a key that is not known. They are left as they are.
	Newer []DamagedObject
	// Repaired says that a new epoch does without them.
	Repaired bool
	// Missing counts the pieces of values that are not here and that the bucket does not have;
	// other devices may have them. It is counted after a repair alone.
	Missing int
}

// DamagedObject is an object and what is wrong with it.
type DamagedObject struct {
	Name string
	Err  error
}

// Check reads all that the present epoch of the page names, and verifies it: the epochs, the
// checkpoint with its runs, the entries, packs piece by piece, and differences. So it also finds
// what is missing. Objects that turn out to be damaged are read again before that is believed. It
// goes on beside sync.
//
// With Repair, and when there is something to repair, the page then does what Reupload does. Pieces
// that stand in damaged packs are fetched before as far as they can be read; then these packs are
// deleted, so that the new epoch does not name them, and all devices send what they have of them.
//
// Errors: those of Sync; damage is none.
func (p *Page) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c := &checkRun{p: p, o: o, report: &CheckReport{}, packs: map[epoch.ID]string{}, named: map[string]placedObject{}}
	if err := c.run(ctx); err != nil {
		return nil, p.outward(err)
	}
	r := c.report
	if !o.Repair || len(r.Damaged) == 0 {
		return r, nil
	}
	err = p.reupload(ctx, c.drop)
	if err == nil {
		err = c.dropEpoch(ctx)
	}
	if err == nil {
		err = p.store.MissingPieces(ctx, func(object.Digest) error { r.Missing++; return nil })
	}
	if err != nil {
		return r, p.outward(fmt.Errorf("upload anew what is damaged: %w", err))
	}
	r.Repaired = true
	return r, nil
}

// checkRun is a run of Check.
type checkRun struct {
	p  *Page
	o  CheckOptions
	at epoch.Position

	mu     sync.Mutex
	report *CheckReport            // guarded by mu, as all below
	packs  map[epoch.ID]string     // damaged or missing ones, with their names
	spare  []string                // other objects that are damaged, and nobody needs
	own    string                  // the epoch of the page, if it is damaged
	named  map[string]placedObject // packs and differences that are to be checked
}

// placedObject is a pack, or a difference that is an object of its own.
type placedObject struct {
	epoch, id epoch.ID
	diff      bool
}

func (c *checkRun) run(ctx context.Context) error {
	st, err := c.begin(ctx)
	if err != nil {
		return err
	}
	if err := c.announcement(ctx); err != nil {
		return err
	}
	x, err := c.epochs(ctx)
	if err != nil {
		return err
	}
	if err := c.checkpoint(ctx, x, st.Header); err != nil {
		return err
	}
	if err := c.entries(ctx, c.at.Number-st.Entries); err != nil {
		return err
	}
	names := make([]string, 0, len(c.named))
	for name := range c.named {
		names = append(names, name)
	}
	slices.Sort(names)
	return bucket.InParallel(ctx, checkReaders, len(names), func(ctx context.Context, i int) error { return c.stored(ctx, names[i], c.named[names[i]]) })
}

// begin reads the log to its end, and returns what the page knows of it: so all that the epoch
// names is checked, also where the objects that name it cannot be read any more.
func (c *checkRun) begin(ctx context.Context) (*replica.State, error) {
	p := c.p
	held, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer p.unlock()
	if err := p.begin(held); err != nil {
		return nil, err
	}
	_, err = p.ses.log.CatchUp(held)
	if c.at = p.ses.log.Position(); err != nil && !(isDamage(err) && c.at.Joined()) { // the check says what it is
		return nil, p.explain(held, err)
	}
	st := p.rep.Load().State()
	for i := range st.Manifest {
		c.note(&st.Manifest[i])
	}
	if st.Header != nil {
		for _, snap := range st.Header.Snapshots {
			c.wants(snap.Diff.Epoch, snap.Diff.Pack, true)
		}
	}
	return st, nil
}

// object checks an object with read, which returns how much it has read, until it is good or was
// bad so often that this is believed. bad is called then.
func (c *checkRun) object(ctx context.Context, name string, bad func(), read func(ctx context.Context) (int64, error)) error {
	var err error
	var n, all int64
	for range minReads {
		n, err = read(ctx)
		if all += n; err == nil || !isDamage(err) {
			break
		}
	}
	switch {
	case errors.Is(err, base.ErrNotFound):
		c.damaged(name, fmt.Errorf("it is not there: %w", base.ErrGone), bad)
	case errors.Is(err, base.ErrUnsupported), errors.Is(err, seal.ErrUnknownKey):
		c.mu.Lock()
		if len(c.report.Newer) < maxDamages {
			c.report.Newer = append(c.report.Newer, DamagedObject{Name: name, Err: err})
		}
		c.mu.Unlock()
	case err != nil && !isDamage(err):
		return fmt.Errorf("read object %s: %w", name, err)
	case err != nil:
		c.damaged(name, err, bad)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Objects++
	c.report.Bytes += all
	if c.o.Progress != nil {
		c.o.Progress(c.report.Objects, c.report.Bytes)
	}
	return nil
}

// isDamage reports whether an object is not what was written.
func isDamage(err error) bool {
	return errors.Is(err, base.ErrCorrupt) || errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, base.ErrNetwork)
}

// damaged notes an object, with what else bad notes.
func (c *checkRun) damaged(name string, err error, bad func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bad()
	if len(c.report.Damaged) == maxDamages {
		c.report.More++
		return
	}
	c.report.Damaged = append(c.report.Damaged, DamagedObject{Name: name, Err: err})
}

// announcement checks that of the page, which is there once the page has a log.
func (c *checkRun) announcement(ctx context.Context) error {
	if c.at.Number == 0 {
		return nil
	}
	name := wire.AnnouncementName(c.p.s.o.Keyring, c.p.o.Ledger, c.p.store.Page())
	return c.object(ctx, name, func() { c.spare = append(c.spare, name) }, func(ctx context.Context) (int64, error) {
		stored, err := readAll(ctx, c.p.b, name, maxAnnouncementBytes)
		if err == nil {
			_, err = wire.OpenAnnouncement(c.p.s.sealer, name, stored)
		}
		return int64(len(stored)), err
	})
}

// epochs checks all epochs, and returns that of the page, nil where it is damaged.
func (c *checkRun) epochs(ctx context.Context) (own *epoch.Proposal, err error) {
	n := c.p.names
	infos, err := listAll(ctx, c.p.b, n.Epochs(), "")
	if err != nil {
		return nil, fmt.Errorf("list the epochs: %w", err)
	}
	if !slices.ContainsFunc(infos, func(i bucket.Info) bool { return i.Name == n.Epoch(c.at.K) }) {
		infos = append(infos, bucket.Info{Name: n.Epoch(c.at.K)})
	}
	err = bucket.InParallel(ctx, checkReaders, len(infos), func(ctx context.Context, i int) error {
		name, ok := n.Parse(infos[i].Name)
		if !ok {
			return nil
		}
		bad := func() {
			switch {
			case name.Number < c.at.K:
				c.spare = append(c.spare, infos[i].Name)
			case name.Number == c.at.K:
				c.own = infos[i].Name
			}
		}
		return c.object(ctx, infos[i].Name, bad, func(ctx context.Context) (int64, error) {
			stored, err := readAll(ctx, c.p.b, infos[i].Name, wire.MaxEntryBytes)
			if err != nil {
				return 0, err
			}
			x, err := wire.OpenEpoch(c.p.s.sealer, n, stored)
			if err == nil && name.Number == c.at.K {
				own = x
				if x.ID != c.at.Epoch {
					err = &base.CorruptError{Where: "bucket", Key: infos[i].Name, Want: "the epoch that the device has entered", Got: "another one"}
				}
			}
			return int64(len(stored)), err
		})
	})
	return own, err
}

// checkpoint checks that of the epoch x, nil for one that is damaged, and the runs of its header.
func (c *checkRun) checkpoint(ctx context.Context, x *epoch.Proposal, h *checkpoint.Header) error {
	n := c.p.names
	check := func(e, id epoch.ID, l seal.Label, sum epoch.Hash) error {
		return c.object(ctx, n.Checkpoint(e, id), func() {}, func(ctx context.Context) (int64, error) {
			return c.framed(ctx, n.Checkpoint(e, id), l, (*seal.Sum)(&sum))
		})
	}
	if x != nil && x.Checkpoint != (epoch.ID{}) {
		if err := check(x.ID, x.Checkpoint, n.CheckpointLabel(x.ID, x.Checkpoint), x.CheckpointHash); err != nil {
			return err
		}
	}
	if h == nil {
		return nil
	}
	for _, r := range h.Runs {
		if err := check(r.Epoch, r.ID, n.RunLabel(r.Epoch, r.ID), r.Hash); err != nil {
			return err
		}
	}
	return nil
}

// note takes note of what a record names. A pack without pieces is a difference.
func (c *checkRun) note(r wire.Record) {
	switch r := r.(type) {
	case *wire.Pack:
		if r.Dropped == (epoch.ID{}) {
			c.wants(r.Epoch, r.ID, r.Pieces == 0)
		}
	case *wire.Commit:
		if at := r.Diff.Place; at != nil {
			c.wants(at.Epoch, at.Pack, true)
		}
	}
}

func (c *checkRun) wants(e, id epoch.ID, diff bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named[c.p.names.Pack(e, id)] = placedObject{e, id, diff}
}

// entries checks those of the epoch, of which the last one that counts has number last.
func (c *checkRun) entries(ctx context.Context, from uint64) error {
	n, e := c.p.names, c.at.Epoch
	infos, err := listAll(ctx, c.p.b, n.Log(e), n.Entry(e, from))
	if err != nil {
		return fmt.Errorf("list the log: %w", err)
	}
	last := c.at.Number
	for _, info := range infos {
		if name, ok := n.Parse(info.Name); ok {
			last = max(last, name.Number)
		}
	}
	return bucket.InParallel(ctx, checkReaders, int(last-from), func(ctx context.Context, i int) error {
		number := from + 1 + uint64(i)
		name := n.Entry(e, number)
		return c.object(ctx, name, func() {}, func(ctx context.Context) (int64, error) {
			stored, err := readAll(ctx, c.p.b, name, wire.MaxEntryBytes)
			if err != nil {
				return 0, err
			}
			entry, err := wire.OpenEntry(c.p.s.sealer, n, e, number, stored)
			if err == nil {
				err = c.body(ctx, entry)
			}
			return int64(len(stored)), err
		})
	})
}

// body reads the body of an entry.
func (c *checkRun) body(ctx context.Context, e *wire.Entry) error {
	if e.Closing != nil {
		return nil
	}
	r, closer, err := pagelog.OpenBody(ctx, c.p.b, c.p.s.sealer, c.p.names, e)
	if err != nil {
		return err
	}
	defer closer.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		c.note(rec)
	}
}

// framed reads a framed object to its end.
func (c *checkRun) framed(ctx context.Context, name string, label seal.Label, sum *seal.Sum) (n int64, err error) {
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
}

// stored checks a pack, or a difference.
func (c *checkRun) stored(ctx context.Context, name string, o placedObject) error {
	bad := func() { c.packs[o.id] = name }
	if o.diff {
		return c.object(ctx, name, bad, func(ctx context.Context) (int64, error) {
			return c.framed(ctx, name, c.p.names.DiffLabel(o.epoch, o.id), nil)
		})
	}
	return c.object(ctx, name, bad, func(ctx context.Context) (int64, error) {
		r, err := pack.OpenWhole(ctx, c.p.b, c.p.s.sealer, c.p.names, wire.Pack{Epoch: o.epoch, ID: o.id})
		if err != nil {
			return 0, err
		}
		defer r.Close()
		return int64(r.Ref().Bytes), r.Each(ctx, func(storage.PlacedPiece, []byte) error { return nil })
	})
}

// drop fetches what can be read of the damaged packs, and deletes these, so that a renewal does not
// name them, and what else is damaged and of no use.
func (c *checkRun) drop(ctx context.Context) error {
	if c.p.isBare() {
		return nil
	}
	if len(c.packs) > 0 {
		if err := c.salvage(ctx); err != nil {
			return err
		}
	}
	for _, name := range c.packs {
		c.spare = append(c.spare, name)
	}
	return c.delete(ctx, c.spare...)
}

// dropEpoch deletes the damaged epoch that the page was in, once it is past: until then it says
// that the bucket is damaged, where one that is missing says that it was rolled back.
func (c *checkRun) dropEpoch(ctx context.Context) error {
	if c.own == "" || c.p.rep.Load().Position().K <= c.at.K {
		return nil
	}
	return c.delete(ctx, c.own)
}

func (c *checkRun) delete(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := c.p.b.Delete(ctx, name); err != nil && !errors.Is(err, base.ErrNotFound) {
			return fmt.Errorf("delete damaged object %s: %w", name, err)
		}
	}
	return nil
}

// salvage fetches the pieces that are not here from damaged packs, as far as these can be read.
func (c *checkRun) salvage(ctx context.Context) error {
	placed, err := c.p.store.PlacedIn(ctx, func(at storage.CloudPlace) bool { return at.Entry == 0 && c.packs[epoch.ID(at.Pack)] != "" })
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
