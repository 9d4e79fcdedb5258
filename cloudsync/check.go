package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// checkReaders is how many objects are checked at once. Each may take 64 MiB, though those that
	// are written today take 17.
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
	// Newer are objects that say that a newer version has written them. That may be damage too, of
	// the byte that says it: they are left as they are.
	Newer []DamagedObject
	// Repaired says that the log begins anew without them.
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

// Check reads all that the bucket has of the page and that a device may read, from the floor on,
// and verifies it: entries and ranges of the log, packs piece by piece, diffs, checkpoints, floors.
// It also finds what is missing: entries between others, and packs that something here stands in.
// Objects that turn out to be damaged are read again before that is believed. It goes on beside
// sync; what is deleted meanwhile is passed over.
//
// With Repair, and when there is something to repair, the page then does what Reupload does, and
// lets the log begin anew. Pieces that stand in damaged packs are fetched before as far as they can
// be read, and uploaded to others; then those of them are deleted of which nothing else can be
// read, so that the other devices send what they have of them. When a part of the log, a diff or a
// checkpoint is damaged, all commits are sent again whose trees are here.
//
// Errors: those of Sync; damage is none.
func (p *Page) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c := &checkRun{p: p, o: o, report: &CheckReport{}, packs: map[[16]byte]bool{},
		announced: map[format.ID]bool{}, diffs: map[format.ID]bool{}, condemned: map[format.ID]bool{}}
	if err := c.run(ctx); err != nil {
		return nil, p.outward(err)
	}
	r := c.report
	if !o.Repair || len(r.Damaged) == 0 {
		return r, nil
	}
	err = p.reupload(ctx, &damage{packs: c.packs, spare: c.spare, log: c.log, floors: c.floors, floor: c.floor, at: c.at, why: fmt.Errorf("%s: %w", r.Damaged[0].Name, r.Damaged[0].Err)})
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
	p     *Page
	o     CheckOptions
	floor format.Floor
	at    uint64 // where the page stood

	mu     sync.Mutex
	known  map[format.ID]bool // packs in which pieces stand; not changed once packs are read
	needed map[format.ID]bool // these, and what the log or a checkpoint names and nobody has condemned; likewise
	report *CheckReport       // guarded by mu, as all below
	packs  map[[16]byte]bool  // damaged or missing
	spare  []string           // damaged, and of no use to anybody
	log    bool               // something else is damaged
	floors []uint64           // damaged

	announced, diffs, condemned map[format.ID]bool // as entries and checkpoints say
}

func (c *checkRun) run(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if err := c.announcement(ctx); err != nil {
		return err
	}
	if err := c.entries(ctx); err != nil {
		return err
	}
	if err := c.each(ctx, c.p.names.CheckpointsPrefix(), func(bucket.Info) {}, c.checkpoint); err != nil {
		return err
	}
	// What is placed is asked for before the packs are listed: what is placed later was uploaded
	// later.
	var err error
	if c.known, err = c.placed(ctx, func(format.ID) bool { return true }); err != nil {
		return err
	}
	c.needed = maps.Clone(c.known)
	for _, named := range []map[format.ID]bool{c.announced, c.diffs} {
		for id := range named {
			c.needed[id] = c.needed[id] || !c.condemned[id]
		}
	}
	absent := maps.Clone(c.needed)
	maps.DeleteFunc(absent, func(_ format.ID, needed bool) bool { return !needed })
	err = c.each(ctx, c.p.names.PacksPrefix(), func(info bucket.Info) {
		if _, _, _, id, ok := c.p.names.ParseName(info.Name); ok {
			delete(absent, id)
		}
	}, c.pack)
	if err != nil || len(absent) == 0 {
		return err
	}
	// They may have been condemned and deleted meanwhile: then nothing stands in them any more.
	still, err := c.placed(ctx, func(id format.ID) bool { return absent[id] })
	if err != nil {
		return err
	}
	for id := range absent {
		if still[id] || !c.known[id] {
			c.damaged(c.p.names.Pack(id), fmt.Errorf("it is not there: %w", base.ErrGone), func() { c.packDamaged(id) })
		}
	}
	return nil
}

// packDamaged notes a pack, or a diff. The caller has mu, or nobody else is at work.
func (c *checkRun) packDamaged(id format.ID) {
	c.packs[id] = true
	c.log = c.log || c.diffs[id] || !c.known[id] && !c.announced[id]
}

// note takes note of what an entry names.
func (c *checkRun) note(b *format.Body) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.Packs {
		c.announced[b.Packs[i].ID] = true
	}
	for i := range b.Commits {
		c.noteDiff(b.Commits[i].Diff.Pack)
	}
	for i := range b.Explanations {
		c.noteDiff(b.Explanations[i].Diff.Pack)
	}
	if b.Condemned != nil {
		c.noteCondemned(b.Condemned)
	}
}

func (c *checkRun) noteDiff(id format.ID) {
	if !id.IsZero() {
		c.diffs[id] = true
	}
}

func (c *checkRun) noteCondemned(d *format.Condemnation) {
	for _, id := range d.Packs {
		c.condemned[id] = true
	}
}

// begin proves the position, and takes note of it and of the floor.
func (c *checkRun) begin(ctx context.Context) error {
	p := c.p
	held, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer p.unlock()
	if err := p.begin(held); err != nil {
		return err
	}
	c.at = p.ses.log.Position().Number
	if c.floor, err = p.rememberedFloor(held); err != nil {
		return err
	}
	if err := c.each(held, p.names.FloorPrefix(), func(bucket.Info) {}, c.readFloor); err != nil {
		return err
	}
	switch {
	case c.floor.Deleted:
		return ErrDeleted
	case len(c.floors) > 0:
		return nil // a look would end there
	}
	if c.floor, _, err = p.ses.log.LookFloor(held); err == nil && c.floor.Deleted {
		err = ErrDeleted
	}
	return err
}

// readFloor checks a floor.
func (c *checkRun) readFloor(ctx context.Context, info bucket.Info) error {
	kind, k, _, _, ok := c.p.names.ParseName(info.Name)
	if !ok || kind != format.KindFloor {
		return nil
	}
	return c.object(ctx, info.Name, func() { c.floors = append(c.floors, k) }, func(ctx context.Context) (int64, error) {
		stored, err := readAll(ctx, c.p.b, info.Name, maxFloorBytes)
		if err != nil {
			return 0, err
		}
		floor, err := format.OpenFloor(c.p.s.sealer, c.p.names, k, stored)
		if err != nil {
			return int64(len(stored)), err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if floor.K = k; k > c.floor.K {
			c.floor = floor
		}
		return int64(len(stored)), nil
	})
}

// placed returns those of the packs that in says in which pieces stand.
func (c *checkRun) placed(ctx context.Context, in func(format.ID) bool) (map[format.ID]bool, error) {
	found := map[format.ID]bool{}
	_, err := c.p.store.PlacedIn(ctx, func(place storage.CloudPlace) bool {
		if place.Entry == 0 && in(place.Pack) {
			found[place.Pack] = true
		}
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("look where pieces are: %w", err)
	}
	return found, nil
}

// each checks all objects below a prefix, some at a time. note is told of them in order, before.
func (c *checkRun) each(ctx context.Context, prefix string, note func(bucket.Info), check func(ctx context.Context, info bucket.Info) error) error {
	for after := ""; ; {
		infos, err := c.p.b.List(ctx, after, prefix, bucket.MaxList)
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, info := range infos {
			if info.Name <= after {
				return &base.CorruptError{Where: "list", Key: prefix, Want: "names in order", Got: info.Name}
			}
			after = info.Name
			note(info)
		}
		err = inParallel(ctx, checkReaders, len(infos), func(ctx context.Context, i int) error { return check(ctx, infos[i]) })
		if err != nil {
			return err
		}
		if len(infos) < bucket.MaxList {
			return nil
		}
	}
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
		return nil // it was deleted since it was listed
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

func (c *checkRun) logDamaged() { c.log = true }

// announcement checks that of the page, which is there once the page has a log.
func (c *checkRun) announcement(ctx context.Context) error {
	name := format.AnnouncementName(c.p.s.o.Keyring, c.p.o.Ledger, c.p.store.Page())
	missing := false
	err := c.object(ctx, name, func() { c.spare = append(c.spare, name) }, func(ctx context.Context) (int64, error) {
		stored, err := readAll(ctx, c.p.b, name, maxAnnouncementBytes)
		if missing = errors.Is(err, base.ErrNotFound); err == nil {
			_, err = format.OpenAnnouncement(c.p.s.sealer, name, stored)
		}
		return int64(len(stored)), err
	})
	if err == nil && missing && c.at > 0 {
		c.damaged(name, fmt.Errorf("it is not there: %w", base.ErrGone), func() { c.spare = append(c.spare, name) })
	}
	return err
}

// entries checks the log from the floor on: that it has no gaps, and that what is there can be
// opened.
func (c *checkRun) entries(ctx context.Context) error {
	low := max(c.floor.Low, 1)
	covered := low - 1
	gap := func(upTo uint64) {
		err := fmt.Errorf("entries up to %d are not there: %w", upTo, base.ErrGone)
		c.damaged(c.p.names.Entry(covered+1), err, c.logDamaged)
	}
	err := c.each(ctx, c.p.names.LogPrefix(), func(info bucket.Info) {
		_, from, to, _, ok := c.p.names.ParseName(info.Name)
		if !ok || to < low || info.Size == 0 { // see plug
			return
		}
		if from > covered+1 {
			gap(from - 1)
		}
		covered = max(covered, to)
	}, func(ctx context.Context, info bucket.Info) error {
		_, from, to, _, ok := c.p.names.ParseName(info.Name)
		if !ok || to < low || info.Size == 0 {
			return nil
		}
		spare := false
		if from < to {
			var err error
			if spare, err = c.isSpare(ctx, max(from, low), to); err != nil {
				return err
			}
		}
		bad := c.logDamaged
		if spare {
			bad = func() { c.spare = append(c.spare, info.Name) }
		}
		return c.object(ctx, info.Name, bad, func(ctx context.Context) (int64, error) {
			stored, err := readAll(ctx, c.p.b, info.Name, format.MaxRangeBytes)
			if err == nil {
				err = c.open(from, to, low, stored)
			}
			return int64(len(stored)), err
		})
	})
	if err == nil && covered < c.at {
		gap(c.at)
	}
	return err
}

// isSpare reports whether all entries that a range has are there one by one.
func (c *checkRun) isSpare(ctx context.Context, from, to uint64) (bool, error) {
	next := from
	for after := c.p.names.Entry(from - 1); next <= to; {
		infos, err := c.p.b.List(ctx, after, c.p.names.LogPrefix(), bucket.MaxList)
		if err != nil {
			return false, fmt.Errorf("list the log: %w", err)
		}
		for _, info := range infos {
			if _, first, last, _, ok := c.p.names.ParseName(info.Name); ok && first == last && first == next && info.Size > 0 {
				next++
			}
		}
		if len(infos) < bucket.MaxList || infos[len(infos)-1].Name <= after {
			break
		}
		after = infos[len(infos)-1].Name
	}
	return next > to, nil
}

// open opens the entries of an object of the log, those below low aside.
func (c *checkRun) open(from, to, low uint64, stored []byte) error {
	entries := []format.RangeEntry{{Stored: stored}}
	if from < to {
		var err error
		if entries, err = format.ParseRange(from, to, stored); err != nil {
			return err
		}
	}
	for i, e := range entries {
		if number := from + uint64(i); number >= low {
			entry, err := format.OpenEntry(c.p.s.sealer, c.p.names, number, e.Stored)
			if err != nil {
				return err
			}
			c.note(entry.Body)
		}
	}
	return nil
}

// checkpoint checks one that is not below that of the floor.
func (c *checkRun) checkpoint(ctx context.Context, info bucket.Info) error {
	kind, number, _, _, ok := c.p.names.ParseName(info.Name)
	if !ok || kind != format.KindCheckpoint || number < c.floor.Checkpoint {
		return nil
	}
	return c.object(ctx, info.Name, c.logDamaged, func(ctx context.Context) (int64, error) {
		n, err := c.framed(ctx, info.Name, c.p.names.CheckpointLabel(number))
		if err != nil {
			return n, err
		}
		header, err := c.p.readCheckpoint(ctx, number)
		if err != nil {
			return n, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range header.Packs {
			c.announced[header.Packs[i].ID] = true
		}
		for i := range header.Condemned {
			c.noteCondemned(&header.Condemned[i])
		}
		return n, nil
	})
}

// framed reads a framed object to its end.
func (c *checkRun) framed(ctx context.Context, name string, label seal.Label) (n int64, err error) {
	o, err := c.p.b.Get(ctx, name, 0, -1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, o.Body.Close()) }()
	stream, err := c.p.s.sealer.NewStream(o.Body, label)
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, stream)
}

// pack checks a pack, or a diff: names do not tell them apart. What nothing from the floor on
// speaks of, and nothing here stands in, is garbage, or was damaged once.
func (c *checkRun) pack(ctx context.Context, info bucket.Info) error {
	kind, _, _, id, ok := c.p.names.ParseName(info.Name)
	if !ok || kind != format.KindPack || !c.needed[id] {
		return nil
	}
	return c.object(ctx, info.Name, func() { c.packDamaged(id) }, func(ctx context.Context) (int64, error) {
		n, err := c.wholePack(ctx, id)
		if !isDamage(err) {
			return n, err
		}
		m, diffErr := c.framed(ctx, info.Name, c.p.names.DiffLabel(id))
		if n += m; diffErr == nil || !isDamage(diffErr) && !errors.Is(diffErr, base.ErrUnsupported) { // the end of an object says better whether it is newer
			err = diffErr
		}
		return n, err
	})
}

// wholePack verifies a pack, and returns how long the object is.
func (c *checkRun) wholePack(ctx context.Context, id format.ID) (int64, error) {
	r, err := pack.OpenWhole(ctx, c.p.b, c.p.s.sealer, c.p.names, format.PackRef{ID: id})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return int64(r.Ref().Bytes), r.Each(ctx, nil, func(storage.PlacedPiece, []byte) error { return nil })
}
