package cloudsync

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// session is what a page knows of its log. It belongs to who has the turn.
type session struct {
	log      *cloudlog.Log // nil: to be made from what the store says
	looked   bool          // the log was read to its end once
	offered  bool          // there is no history to offer; see offerHistory
	founder  bool          // a checkpoint is to be written for who comes new; see passGaps
	searched bool          // in vain, for a piece whose place is not known; see findPlaceOf
	found    bool          // there are no places to look for; see findPlaces
	whole    bool          // there are no trees of heads to build; see completeHeads
	first    bool          // the page had read nothing when the session began
	begun    bool          // nothing was missing behind what the page had read when it first came to the end of the log
	tip      time.Time     // when it was last known to have nothing that is not applied; zero: not known
	arrived  bool          // commits have come since somebody was told
	resend   bool          // an entry has condemned something that may be needed
	toldPast bool          // see tellPast; nothing has come since
	trees    []commit.ID   // that the entries which could not be applied need

	announced  bool // the page's announcement is in the bucket
	checkpoint checkpointRow
	device     deviceRow
	floor      floorRow
	retention  format.Retention
	carried    bool      // the log does not say so yet: another one did, or one that is lost
	opened     time.Time // when the session began, by the bucket's clock
	untold     time.Time // when the bucket could not be told how far this device is
	slack      float64   // of this device, for the next checkpoint
	retryAt    time.Time // when a checkpoint that failed is tried again
	holdUntil  time.Time // see held
	own        ownRow    // see proveOwn
	ownSince   time.Time // when this session has put the first of them; zero: another one has
	proved     uint64    // up to which entry proveOwn has found all
	trusted    time.Time // when packs that no entry has named were last believed only after a look
}

// Rows of metadata that only this package knows.
const (
	metadataAnnounced = "announced" // the bucket's id
	metadataBegun     = "begun"     // the id of the device that has once looked for the end of the log by a list
)

// condemned takes note of what was applied: it may have condemned something that is to be sent
// again, and taken the places of what is not held.
func (ses *session) condemned(res ingest.Result) {
	if res.Condemned {
		ses.resend, ses.found = true, false
	}
}

// load reads what the store knows of the log. Rows that are only estimates, or can be made anew,
// are passed over when they make no sense.
func (p *Page) load(ctx context.Context) error {
	at, err := p.storedPosition(ctx)
	if err != nil {
		return err
	}
	if p.ses.opened.IsZero() && at.Number == 0 {
		if err := p.mistrust(ctx); err != nil {
			return err
		}
	}
	rows := map[string][]byte{}
	for _, typ := range []string{metadataAnnounced, format.MetadataRetention, metadataBegun, metadataOwn, format.MetadataCheckpoint, format.MetadataDevice,
		format.MetadataFloor, format.MetadataServerTime} {
		if rows[typ], err = p.store.Metadata(ctx, typ); err != nil {
			return fmt.Errorf("read %s: %w", typ, err)
		}
	}
	ses := &p.ses
	if ses.opened.IsZero() {
		ses.opened, ses.slack = p.s.gate.now(), p.s.random()
	}
	id := p.s.o.Keyring.BucketID()
	ses.announced = string(rows[metadataAnnounced]) == string(id[:])
	ses.begun = bytes.Equal(rows[metadataBegun], p.s.o.Device[:])
	p.knowRetention(rows[format.MetadataRetention])
	if c, ok := parseCheckpointRow(rows[format.MetadataCheckpoint]); ok {
		ses.checkpoint = c
	}
	ses.device = parseDevice(rows[format.MetadataDevice], p.s.o.Device)
	ses.floor = parseFloor(rows[format.MetadataFloor])
	p.loadOwn(rows[metadataOwn], at.Number)
	p.newLog(at)
	p.applied(at, rows[format.MetadataServerTime])
	return nil
}

// mistrust forgets what the page knows of the bucket when it knows something and not up to where: a
// row that is lost proves nothing of what was sent, and the bucket may be in an older state since.
// Everything counts as unsynced then and is compared with what the log has, as in Reupload. Places
// alone are no such sign while packs wait for their first entry.
func (p *Page) mistrust(ctx context.Context) error {
	heads, err := outgoing.SyncedHeads(ctx, p.store)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(heads, func(h *commit.Commit) bool { return !h.IsFirst() })
	if !known {
		packs, err := p.store.Metadata(ctx, format.MetadataPacks)
		if err != nil {
			return fmt.Errorf("read the packs that are not announced: %w", err)
		}
		if packs != nil {
			return nil
		}
		placed, err := p.store.PlacedIn(ctx, func(storage.CloudPlace) bool { return true })
		if err != nil {
			return fmt.Errorf("look for what is placed: %w", err)
		}
		known = len(placed) > 0
	}
	if !known {
		return nil
	}
	p.s.o.Logger.Warn("the position in the bucket is lost: everything here is compared with what the bucket has", "ledger", p.o.Ledger, "page", p.pageID())
	return p.forget(ctx)
}

// storedPosition returns the position that the store has. One of another bucket is an error (I2).
func (p *Page) storedPosition(ctx context.Context) (format.Position, error) {
	id := format.ID(p.s.o.Keyring.BucketID())
	b, err := p.store.Metadata(ctx, format.MetadataPosition)
	if err != nil {
		return format.Position{}, fmt.Errorf("read the position: %w", err)
	}
	if b == nil {
		return format.Position{Bucket: id}, nil
	}
	at, err := format.ParsePosition(b)
	if err != nil {
		return format.Position{}, fmt.Errorf("read the position: %w", err)
	}
	if at.Bucket != id {
		return format.Position{}, fmt.Errorf("read the position: the page was synced with another bucket: %w", ErrBucketReplaced)
	}
	return at, nil
}

func (p *Page) newLog(at format.Position) {
	floor := p.ses.floor
	p.ses.log = cloudlog.New(cloudlog.Options{Bucket: p.recorder, Sealer: p.s.sealer, Names: p.names, Clock: p.s.o.Clock, Jitter: p.s.random64, At: at,
		Floor: floor.floor, FloorSeen: floor.seen})
}

// applied says how far the page is.
func (p *Page) applied(at format.Position, serverTime []byte) {
	p.change(func() {
		p.position = at.Number
		p.serverTime = time.Time{}
		if len(serverTime) == 8 {
			p.serverTime = time.Unix(0, int64(binary.BigEndian.Uint64(serverTime)))
		}
	})
}

// begin makes sure that there is a log, and that the bucket has the keyring that the device knows;
// that the log is the one that it knows is proved by the log itself (I2).
func (p *Page) begin(ctx context.Context) error {
	if p.ses.log == nil {
		if err := p.load(ctx); err != nil {
			return err
		}
	}
	return p.s.checkKeys(ctx, p.b, proofForReading, false)
}

// ready is begin for a round: that it fails is said of both directions.
func (p *Page) ready(ctx context.Context) error {
	err := p.begin(ctx)
	if err != nil {
		p.ends(ctx, &p.down, err)
		p.ends(ctx, &p.up, err)
	}
	return err
}

// explain finds out why the bucket does not have what the device has seen, when err says so, and
// tells damage of the bucket from such of this device.
func (p *Page) explain(ctx context.Context, err error) error {
	if !wrongBucket(err) {
		if unreadable(err) {
			return damagedError{err}
		}
		return err
	}
	p.ses.log = nil // the next round proves it anew
	if found := p.s.checkKeys(ctx, p.b, proofAnew, true); found != nil {
		return found
	}
	return err
}

// passing does what works on the log, and does it again from the floor's checkpoint when the log no
// longer reaches back to the position, or nobody can make anything of what stands behind it.
func (p *Page) passing(ctx context.Context, do func() error) error {
	do = func(once func() error) func() error {
		return func() error { return p.s.withNewerKeys(ctx, p.b, once) }
	}(do)
	err := do()
	floor, passed := p.passed(ctx, err)
	if !passed {
		return err
	}
	if err := p.loseGone(ctx, floor); err != nil {
		return err
	}
	if err := p.adoptAbove(ctx, floor); err != nil {
		return err
	}
	p.ses.toldPast, p.ses.resend, p.ses.found, p.ses.offered, p.ses.holdUntil = false, true, false, false, p.s.o.Clock.Now().Add(holdBack)
	return do()
}

// passed reports whether a floor has passed what err is about, and returns the floor.
func (p *Page) passed(ctx context.Context, err error) (format.Floor, bool) {
	switch {
	case err == nil:
		return format.Floor{}, false
	case errors.Is(err, cloudlog.ErrPassed):
		floor, _ := p.ses.log.Floor()
		return floor, !floor.Deleted && floor.Checkpoint > 0
	case !unreadable(err):
		return format.Floor{}, false
	}
	if p.ses.log == nil {
		if loadErr := p.load(ctx); loadErr != nil {
			return format.Floor{}, false // err is what is to be told
		}
	}
	floor, _, lookErr := p.ses.log.LookFloor(ctx)
	// Also where the next entry is not below the floor: it may need what was.
	return floor, lookErr == nil && !floor.Deleted && floor.Checkpoint > p.ses.log.Position().Number
}

// adoptAbove begins anew with the checkpoint that a floor names. When that is not there, or not
// good, with the newest that will do: later ones stand for it.
func (p *Page) adoptAbove(ctx context.Context, floor format.Floor) error {
	err := p.adopt(ctx, bucket.Info{Name: p.names.Checkpoint(floor.Checkpoint)}, floor.Checkpoint)
	if err == nil || !passedOver(err) {
		return err
	}
	if found, findErr := p.findAbove(ctx, max(floor.Low, 1, p.ses.log.Position().Number+2)-1); found || findErr != nil { // one below the page's position leads nowhere
		return findErr
	}
	return err
}

// holdBack is how long the background leaves what is to be sent until the heads are merged, when
// the log has passed the page by: then it goes up in one entry with the merge, and nobody meets a
// head whose relation to the others is not known any more.
const holdBack = 10 * time.Minute

// held reports whether what is to be sent waits for a merge.
func (p *Page) held() bool {
	return p.several() && !p.ses.holdUntil.IsZero() && p.until(p.ses.holdUntil, p.s.o.Clock.Now()) > 0
}

// loseGone takes the places of pieces in what the bucket has deleted since the page read the log
// last: such pieces that are held here are sent again when they are needed. It comes before the
// checkpoint that stands for what was missed, so that a crash between loses nothing.
func (p *Page) loseGone(ctx context.Context, floor format.Floor) error {
	infos, err := listAll(ctx, p.b, p.names.PacksPrefix(), "")
	if err != nil {
		return fmt.Errorf("list packs: %w", err)
	}
	there := map[format.ID]bool{}
	for _, info := range infos {
		if kind, _, _, id, ok := p.names.ParseName(info.Name); ok && kind == format.KindPack {
			there[id] = true
		}
	}
	err = p.in.LosePlaces(ctx, func(c storage.CloudPlace) bool {
		if c.Entry > 0 {
			return c.Entry < floor.Low
		}
		return !there[c.Pack]
	})
	if err != nil {
		return fmt.Errorf("give up the places of what is deleted: %w", err)
	}
	return nil
}

// keepFloor keeps what the log has found out about floors, so that the next session need not look
// again the same day.
func (p *Page) keepFloor(ctx context.Context) error {
	floor, seen := p.ses.log.Floor()
	row := floorRow{floor, seen}
	if seen.IsZero() || floor.Deleted || row.floor == p.ses.floor.floor && row.seen.Equal(p.ses.floor.seen) {
		return nil
	}
	p.ses.floor = row
	return p.keep(ctx, storage.Metadata{Type: format.MetadataFloor, Value: row.encode()})
}

// fresh reports whether the log had nothing new a short while ago, so that sending without a look
// is worth it.
func (p *Page) fresh() bool {
	age := p.s.o.Clock.Now().Sub(p.ses.tip)
	return p.ses.looked && !p.ses.tip.IsZero() && age >= 0 && age <= p.s.o.MaxPoll
}

// download applies all entries that are there, and reports whether there were any.
func (p *Page) download(ctx context.Context) (bool, error) {
	found, err := p.catchUp(ctx)
	if err == nil {
		err = p.proveOwn(ctx)
	}
	if err == nil {
		err = p.lookBeyond(ctx)
	}
	if err == nil {
		err = p.keepFloor(ctx)
	}
	if err != nil {
		p.ses.tip = time.Time{}
		err = p.explain(ctx, err)
	} else {
		p.ses.tip = p.s.o.Clock.Now()
		p.schedule(found)
		p.ses.looked = true
		if !p.ses.found {
			err = p.findPlaces(ctx)
			p.ses.found = err == nil
		}
		if err == nil && !p.ses.whole {
			err = p.completeHeads(ctx)
			p.ses.whole = err == nil
		}
		if err == nil && !p.ses.offered {
			p.ses.offered, err = p.offerHistory(ctx, fewCommits)
		}
	}
	p.ends(ctx, &p.down, err)
	if wrongBucket(err) {
		p.ends(ctx, &p.up, err)
	}
	p.tellArrived()
	return found, err
}

// maxTrees bounds how many trees are built from history before one look at the log is given up.
const maxTrees = 64

// catchUp reads the log to its end; a page that has read nothing begins with the newest checkpoint.
func (p *Page) catchUp(ctx context.Context) (found bool, err error) {
	if age := p.s.o.Clock.Now().Sub(p.ses.tip); p.ses.log.Position().Number == 0 && !p.ses.tip.IsZero() && (age < 0 || age >= day) {
		p.ses.looked = false // who has slept for long finds no first entry either way: whether there was never one, or it is deleted
	}
	if !p.ses.looked && p.ses.log.Position().Number == 0 {
		p.ses.first = true
		if found, err = p.find(ctx); err != nil {
			return false, err
		}
	}
	for range maxTrees {
		err = p.passing(ctx, func() error {
			more, err := p.ses.log.CatchUp(ctx, p.ses.first && !p.ses.looked, p.apply)
			found = found || more
			return err
		})
		if err == nil && !p.ses.begun {
			if err = p.checkEnd(ctx); errors.Is(err, errMore) {
				continue
			}
		}
		if err == nil {
			return found, nil
		}
		if err := p.supply(ctx, err); err != nil {
			return found, err
		}
	}
	return found, err
}

// errMore says that the log goes on.
var errMore = errors.New("there is another entry")

// checkEnd calls lookBehind once for who begins, also with a disk that was another device's: he has
// nothing by which he would notice that the log ends too early for him.
func (p *Page) checkEnd(ctx context.Context) error {
	if err := p.lookBehind(ctx); err != nil {
		return err
	}
	p.ses.begun = true
	return p.keep(ctx, storage.Metadata{Type: metadataBegun, Value: p.s.o.Device[:]})
}

// lookBehind lists whether there is anything behind the last entry that was read. Errors: errMore
// when the next entry has come since; a *cloudlog.UnreadableError when it is missing, and there are
// later ones.
func (p *Page) lookBehind(ctx context.Context) error {
	next := p.ses.log.Position().Number + 1
	infos, err := p.b.List(ctx, p.names.Entry(next-1), p.names.LogPrefix(), 2) // a range that ends there may come first
	if err != nil {
		return fmt.Errorf("look for the end of the log: %w", err)
	}
	for _, info := range infos {
		switch _, from, to, _, ok := p.names.ParseName(info.Name); {
		case !ok || to < next:
		case from <= next:
			return errMore
		default:
			return p.holeAt(next)
		}
	}
	return nil
}

// noEntry returns the error of a log that ends before an entry that must be there.
func (p *Page) noEntry(n uint64, want string) error {
	return &cloudlog.UnreadableError{Number: n, Err: fmt.Errorf("read object %s: %w", p.names.Entry(n),
		&base.CorruptError{Where: "log", Key: fmt.Sprintf("%020d", n), Want: want, Got: "nothing"})}
}

// holeAt says that an entry is missing, and that there are later ones.
func (p *Page) holeAt(next uint64) error { return p.noEntry(next, "an entry, as there is a later one") }

// lookBeyond looks whether there are entries behind one that there is not, with each look at the
// floor, once a day: a device that stands where an entry was lost has nothing else by which it
// would notice that the log goes on without it. A list would find any hole, and cost more; this
// finds one of up to 8 entries, as soon as the log goes on so far. Errors: a
// *cloudlog.UnreadableError.
func (p *Page) lookBeyond(ctx context.Context) error {
	_, seen := p.ses.log.Floor()
	next := p.ses.log.Position().Number + 1
	if next == 1 || seen.IsZero() || p.ses.floor.seen.IsZero() || seen.Equal(p.ses.floor.seen) { // who begins has made a list; see checkEnd
		return nil
	}
	for ahead := uint64(1); ahead <= 8; ahead *= 2 {
		there, err := p.hasEntry(ctx, next+ahead)
		if err == nil && there { // the log may have gone on meanwhile
			if there, err = p.hasEntry(ctx, next); err == nil && !there {
				err = p.holeAt(next)
			}
			return err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasEntry reports whether there is an entry of a number in the bucket.
func (p *Page) hasEntry(ctx context.Context, number uint64) (bool, error) {
	o, err := p.b.Get(ctx, p.names.Entry(number), 0, 0)
	if errors.Is(err, base.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		err = o.Body.Close()
	}
	if err != nil {
		return false, fmt.Errorf("look for what comes behind the end of the log: %w", err)
	}
	return o.Size > 0, nil
}

// supply brings what an entry needs that the page does not know since it began with a checkpoint,
// or read past one that has what the log does not. It returns an error that is not about that as it
// is.
func (p *Page) supply(ctx context.Context, err error) error {
	var tree *ingest.NeedsTreeError
	var places *ingest.NeedsPlacesError
	var unknown *ingest.UnknownCommitError
	switch {
	case errors.As(err, &unknown):
		return p.takeUnknown(ctx, unknown.Commit, err)
	case errors.As(err, &tree):
		if err := p.load(ctx); err != nil {
			return err
		}
		if err := p.buildTrees(ctx, append(p.ses.trees, tree.Commit)); err != nil {
			return fmt.Errorf("build the tree of %s for %s: %w", tree.Commit.Short(), tree.Object, err)
		}
		return nil
	case errors.As(err, &places):
		if err := p.load(ctx); err != nil {
			return err
		}
		if err := p.supplyPlaces(ctx, places); err != nil {
			return fmt.Errorf("look for piece %s for %s: %w", places.Piece.Short(), places.Object, err)
		}
		return nil
	}
	return err
}

// maxSearched is in how many checkpoints, from the newest on, a commit is looked for that an entry
// builds on.
const maxSearched = 8

// takeUnknown takes a commit that the log does not have from a checkpoint: there are such when
// somebody has offered history after this device had read past it, or two have at the same time.
// When there is none, the error is why.
func (p *Page) takeUnknown(ctx context.Context, id commit.ID, why error) error {
	infos, err := listAll(ctx, p.b, p.names.CheckpointsPrefix(), "")
	if err != nil {
		return fmt.Errorf("look for checkpoints: %w", err)
	}
	for _, info := range slices.Backward(infos[max(0, len(infos)-maxSearched):]) {
		kind, number, _, _, ok := p.names.ParseName(info.Name)
		if !ok || kind != format.KindCheckpoint {
			continue
		}
		res, found, err := p.in.TakeHistory(ctx, number, id)
		switch {
		case errors.Is(err, base.ErrCorrupt), errors.Is(err, base.ErrNotFound):
			p.s.o.Logger.Warn("a checkpoint is passed over", "ledger", p.o.Ledger, "page", p.pageID(), "checkpoint", number, "error", err)
		case err != nil:
			return err
		case found:
			p.ses.arrived, p.ses.toldPast = p.ses.arrived || res.Commits > 0, false
			return p.load(ctx)
		}
	}
	return why
}

// completeHeads builds the trees of heads of which a part is not here: a repair that could not ask
// the bucket leaves such. A tree that the bucket does not have stays as it is.
func (p *Page) completeHeads(ctx context.Context) error {
	for _, h := range p.store.Heads() {
		held, err := p.store.TreeHeld(ctx, h)
		if err == nil && !held {
			err = p.buildTree(ctx, h.ID)
		}
		if err != nil && !unreadable(err) {
			return fmt.Errorf("complete the tree of head %s: %w", h.ID, err)
		}
	}
	return nil
}

// buildTree builds the tree of a commit from what the bucket has.
func (p *Page) buildTree(ctx context.Context, id commit.ID) error {
	past, err := p.pastOf(ctx, 0)
	if err != nil {
		return err
	}
	return p.in.BuildTree(ctx, id, past)
}

// buildTrees is buildTree for several commits.
func (p *Page) buildTrees(ctx context.Context, ids []commit.ID) error {
	past, err := p.pastOf(ctx, 0)
	if err != nil {
		return err
	}
	return p.in.BuildTrees(ctx, ids, past)
}

// basesOf returns the commits that entries need the trees of, as far as they are here without.
func (p *Page) basesOf(ctx context.Context, entries []*format.Entry) (ids []commit.ID, err error) {
	seen := map[commit.ID]bool{}
	for _, e := range entries {
		for i := range e.Body.Commits {
			seen[e.Body.Commits[i].Commit.ID] = true
			from := e.Body.Commits[i].Base
			if from.Empty || seen[from.Commit] {
				continue
			}
			seen[from.Commit] = true
			c, err := p.store.Commit(ctx, from.Commit)
			if errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone) {
				continue
			}
			held := false
			if err == nil {
				held, err = p.store.TreeHeld(ctx, c)
			}
			if err != nil {
				return nil, fmt.Errorf("look for the trees that entries need: %w", err)
			}
			if !held {
				ids = append(ids, from.Commit)
			}
		}
	}
	return ids, nil
}

// pastOf returns what the bucket has of the page's past: up to its position, or through an entry
// behind that, which is being taken with those before it. Of many checkpoints that are there it
// names the newest, and those that a floor stands on: they have trees that no other has.
func (p *Page) pastOf(ctx context.Context, through uint64) (ingest.Past, error) {
	infos, err := listAll(ctx, p.b, p.names.CheckpointsPrefix(), "")
	if err != nil {
		return ingest.Past{}, fmt.Errorf("look for checkpoints: %w", err)
	}
	all := p.checkpointNumbers(infos)
	floor, _ := p.ses.log.Floor()
	numbers := all[max(0, len(all)-maxPast):]
	for _, n := range []uint64{floor.Checkpoint, floor.Low} {
		if i, there := slices.BinarySearch(numbers, n); !there && slices.Contains(all, n) {
			numbers = slices.Insert(slices.Clone(numbers), i, n)
		}
	}
	last := max(through, p.ses.log.Position().Number)
	return ingest.Past{Checkpoints: numbers, Entries: func(from format.Position, yield func(*format.Entry) error) error {
		return p.entriesUpTo(ctx, last, from, yield)
	}}, nil
}

// maxPast is how many of the newest checkpoints a tree may be built from.
const maxPast = 6

// at says how far the log is read, and whether the bucket gives history up.
func (p *Page) at() (number uint64, shallow bool) {
	if p.ses.log == nil {
		return 0, true
	}
	floor, _ := p.ses.log.Floor()
	return p.ses.log.Position().Number, floor.Low > 1 || p.ses.retention != format.Retention{}
}

// checkpointNumbers returns the numbers of listed checkpoints up to the page's position, ascending.
func (p *Page) checkpointNumbers(infos []bucket.Info) (numbers []uint64) {
	for _, info := range infos {
		kind, number, _, _, ok := p.names.ParseName(info.Name)
		if ok && kind == format.KindCheckpoint && number <= p.ses.log.Position().Number {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// apply is the Apply of the page's log. After an error the log is made anew: what came before a bad
// entry has been applied.
func (p *Page) apply(ctx context.Context, entries []*format.Entry, at format.Position) error {
	p.begins(&p.down)
	for _, e := range entries {
		if e.Body.Renewed || e.Body.Shallow {
			p.ses.toldPast = false
		}
		if e.Body.Renewed {
			p.ses.offered = false
		}
	}
	for _, e := range entries { // before the position moves: who ends between does it again
		if err := p.prune(ctx, e.Body.GivenUp); err != nil {
			return err
		}
	}
	res, err := p.in.Apply(ctx, entries, at)
	p.ses.condemned(res)
	p.ses.arrived = p.ses.arrived || res.Commits > 0
	if res.Missing > 0 {
		p.s.o.Logger.Warn("commits have come with values of which nobody has sent all pieces", "ledger", p.o.Ledger, "page", p.pageID(), "pieces", res.Missing)
	}
	if err != nil {
		p.ses.log, p.ses.trees = nil, nil
		if _, ok := errors.AsType[*ingest.NeedsTreeError](err); ok { // others will be needed next
			if trees, lookErr := p.basesOf(ctx, entries); lookErr == nil {
				p.ses.trees = trees
			}
		}
		if durable, posErr := p.storedPosition(ctx); posErr == nil { // some entries may have been applied
			p.change(func() { p.position = durable.Number })
		}
		return err
	}
	for _, e := range entries {
		p.recorder.confirm(e.Number, e.Hash)
		if e.Body.Device != p.s.o.Device {
			p.s.applied.Add(1)
		}
	}
	if res.Retention != nil {
		p.ses.retention, p.ses.carried = *res.Retention, false
	}
	if err := p.prune(ctx, res.GivenUp); err != nil { // such as came with these entries
		return err
	}
	serverTime, err := p.store.Metadata(ctx, format.MetadataServerTime)
	if err != nil {
		return fmt.Errorf("read the bucket's time: %w", err)
	}
	p.applied(at, serverTime)
	return nil
}

// tellArrived tells the page's owner of heads that came.
func (p *Page) tellArrived() {
	if p.ses.arrived && p.o.Arrived != nil {
		p.o.Arrived()
	}
	p.ses.arrived = false
}

// keep makes rows of metadata durable.
func (p *Page) keep(ctx context.Context, rows ...storage.Metadata) error {
	return keepRows(ctx, p.store, rows...)
}

func keepRows(ctx context.Context, store *storage.Store, rows ...storage.Metadata) error {
	pending, err := store.SubmitSync(ctx, nil, &storage.SyncBatch{Metadata: rows})
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		return fmt.Errorf("keep metadata: %w", err)
	}
	return nil
}

// maxAdopt is how many checkpoints are tried, from the newest on.
const maxAdopt = 3

// find begins with the newest checkpoint that is good, and reports whether there is one.
func (p *Page) find(ctx context.Context) (bool, error) { return p.findAbove(ctx, 1) }

// findAbove is find among checkpoints of numbers from least on.
func (p *Page) findAbove(ctx context.Context, least uint64) (bool, error) {
	infos, err := listAll(ctx, p.b, p.names.CheckpointsPrefix(), "")
	if err != nil {
		return false, fmt.Errorf("look for checkpoints: %w", err)
	}
	tried, bad := 0, error(nil)
	for i := len(infos) - 1; i >= 0 && tried < maxAdopt; i-- {
		kind, number, _, _, ok := p.names.ParseName(infos[i].Name)
		if !ok || kind != format.KindCheckpoint || number < least {
			continue
		}
		tried++
		p.begins(&p.down)
		err := p.s.withNewerKeys(ctx, p.b, func() error { return p.adopt(ctx, infos[i], number) })
		if err == nil {
			return true, nil
		}
		if !passedOver(err) {
			return false, err
		}
		if errors.Is(err, base.ErrCorrupt) && bad == nil {
			bad = err
		}
		p.s.o.Logger.Warn("a checkpoint is passed over", "ledger", p.o.Ledger, "page", p.pageID(), "checkpoint", number, "error", err)
	}
	return false, bad // without a checkpoint the log may tell only a part: see offerHistory
}

// passedOver reports whether a checkpoint that could not be taken is of no use, so that another one
// is tried.
func passedOver(err error) bool {
	// One that is too large for a step of storage, with heads and trees of 32 MiB of commits, is no
	// use either: the log has it all.
	return errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrTooLarge)
}

// adopt takes over a checkpoint, and goes on with the log behind it.
func (p *Page) adopt(ctx context.Context, info bucket.Info, number uint64) error {
	_, res, err := p.in.Adopt(ctx, number)
	if err != nil {
		p.ses.log = nil
		if loadErr := p.load(ctx); loadErr != nil {
			return errors.Join(err, loadErr)
		}
		return fmt.Errorf("begin with checkpoint %d: %w", number, err)
	}
	p.ses.arrived = p.ses.arrived || res.Commits > 0
	p.ses.condemned(res)
	if err := p.knowCheckpoint(ctx, checkpointRow{number: number, size: uint64(max(info.Size, 0))}, 0); err != nil {
		return err
	}
	return p.load(ctx)
}

// knowCheckpoint keeps what is known of the newest checkpoint, with the bytes of the log behind it.
func (p *Page) knowCheckpoint(ctx context.Context, row checkpointRow, since uint64) error {
	p.ses.checkpoint = row
	p.ses.slack = p.s.random()
	return p.keep(ctx, storage.Metadata{Type: format.MetadataCheckpoint, Value: row.encode()}, storage.Metadata{Type: format.MetadataSince, Value: binary.BigEndian.AppendUint64(nil, since)})
}
