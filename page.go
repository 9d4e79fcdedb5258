package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/gate"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// Page is a handle of an open page. Several handles of one page share its store, which closes when
// the last handle has been closed. A Page is safe for concurrent use.
//
// While a page has several heads, a handle stays on its own branch: it reads and writes on the
// newest head that is, or descends from, the commit that it saw last, until the branches are merged
// or Refresh is called. A new handle begins at the newest head. Where a doc comment says "the
// handle's head", that head is meant.
type Page struct {
	ledger *Ledger
	shared *pageStore
	store  *storage.Store // of shared
	gate   *gate.Gate
	kind   presence.Kind

	once     sync.Once
	leaked   leaks
	closeErr error

	position atomic.Pointer[commit.Commit] // see branch.go
	refused  refusals

	mu        sync.Mutex
	txs       map[*Tx]struct{}            // guarded by mu
	snapshots map[*snapshotState]struct{} // guarded by mu
}

// ID returns the page's id.
func (p *Page) ID() PageID { return p.shared.key.ID }

// Name returns the human name under which the page was opened or is known, "" when there is none.
func (p *Page) Name() string { return p.shared.name }

// Ledger returns the ledger of the page.
func (p *Page) Ledger() *Ledger { return p.ledger }

// Close releases the handle: transactions and snapshots taken from it are rolled back and closed,
// and counted in the error. It waits for calls that run, is idempotent, and closes the store with
// the last handle.
func (p *Page) Close() error {
	l, err := p.close()
	if err := errors.Join(l.err(), err); err != nil {
		return fmt.Errorf("close page %s: %w", p.shared.key.Text(p.shared.name), err)
	}
	return nil
}

func (p *Page) close() (leaks, error) {
	p.once.Do(func() {
		p.gate.Close()
		var errs []error
		p.leaked, errs = p.endAll()
		p.closeErr = errors.Join(append(errs, p.shared.drop(p))...)
	})
	return p.leaked, p.closeErr
}

// endAll ends what was taken from the handle and counts what its caller should have ended. The gate
// is closed.
func (p *Page) endAll() (leaks, []error) {
	p.mu.Lock()
	var txs []*Tx
	for t := range p.txs {
		txs = append(txs, t)
	}
	var snapshots []*snapshotState
	for s := range p.snapshots {
		snapshots = append(snapshots, s)
	}
	p.mu.Unlock()
	var l leaks
	var errs []error
	for _, t := range txs {
		open, err := t.end()
		if open && !t.managed {
			l.transactions++
		}
		errs = append(errs, err)
	}
	for _, s := range snapshots {
		if s.end() && !s.managed {
			l.snapshots++
		}
	}
	return l, errs
}

var errPageClosed = fmt.Errorf("page: %w", ErrClosed)

// enter lets a call in that must then leave.
func (p *Page) enter() error {
	if !p.gate.Enter() {
		return errPageClosed
	}
	return nil
}

func (p *Page) leave()               { p.gate.Leave() }
func (p *Page) closing() *gate.Gate  { return p.gate }
func (p *Page) pieces() split.Source { return p.store }
func (p *Page) note(err error)       { p.shared.note(err) }

// find makes a Page the origin of the entries of a Diff, which hold their inline values.
func (p *Page) find(context.Context, []byte) (fb.Entry, bool, error) { return fb.Entry{}, false, nil }

func (p *Page) log() *slog.Logger {
	return p.shared.log()
}

// warn logs an error that is of no consequence for the call that met it.
func (p *Page) warn(err error) {
	if err != nil {
		p.log().Warn("a temporary file stays until the page is opened again", "error", err)
	}
}

// pin returns a commit, zero meaning the handle's head, and keeps it from being pruned until
// release is called.
func (p *Page) pin(ctx context.Context, id CommitID) (c *commit.Commit, release func(), err error) {
	if !id.IsZero() {
		release := p.store.Pin(commit.ID(id))
		c, err := p.store.Commit(ctx, commit.ID(id))
		if err == nil {
			// Somebody may have seen the id before its sync returned.
			err = p.store.WaitDurable(c)
		}
		if err != nil {
			release()
			p.note(err)
			return nil, nil, err
		}
		return c, release, nil
	}
	for {
		c, err := p.head(ctx)
		if err != nil {
			return nil, nil, err
		}
		release := p.store.Pin(c.ID)
		// It may have become an ancestor in between, and have been pruned.
		if slices.Contains(p.store.Heads(), c) {
			return c, release, nil
		}
		release()
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
}

// View calls fn with a snapshot of the handle's head and closes it when fn returns. It returns what
// fn returns. Errors: ErrClosed, ErrCorrupt.
func (p *Page) View(ctx context.Context, fn func(*Snapshot) error) error {
	if fn == nil {
		return fmt.Errorf("view: there is no function: %w", ErrInvalid)
	}
	s, err := p.snapshot(ctx, CommitID{}, true)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // always nil
	return fn(s)
}

// Snapshot returns the page as of the handle's head. It must be closed. Errors: ErrClosed,
// ErrCorrupt.
func (p *Page) Snapshot(ctx context.Context) (*Snapshot, error) {
	return p.snapshot(ctx, CommitID{}, false)
}

// At returns the page as of a commit; the zero id means the handle's head. It must be closed. With
// a cloud it may fetch the commit's tree; see FetchHistory. Errors: ErrNotFound, ErrNeedsFetch,
// ErrNetwork, ErrClosed, ErrCorrupt.
func (p *Page) At(ctx context.Context, id CommitID) (*Snapshot, error) {
	return p.snapshot(ctx, id, false)
}

func (p *Page) snapshot(ctx context.Context, id CommitID, managed bool) (*Snapshot, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	c, release, err := p.pin(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	if !id.IsZero() {
		if err := p.ensureTree(ctx, c); err != nil {
			release()
			return nil, fmt.Errorf("take snapshot: %w", err)
		}
	}
	return p.newSnapshot(c, release, managed), nil
}

func (p *Page) closeSnapshot(s *snapshotState) error {
	p.mu.Lock()
	delete(p.snapshots, s)
	p.mu.Unlock()
	s.end()
	return nil
}

// Commit is an immutable version of a page. It is a copy; its slices belong to the caller.
type Commit struct {
	ID CommitID
	// Time is Timestamp as a time in UTC.
	Time time.Time
	// Timestamp is when the commit was made, in nanoseconds since 1970, by the clock of the device
	// that made it; where a parent is less than a day ahead of that clock, it is 1 ns after the
	// parent. A merge commit has that of its later parent. Where clocks were wrong it may be less
	// than that of a parent; Generation never is.
	Timestamp int64
	// Generation is the longest path to the first commit, which has 0.
	Generation uint64
	// Root is the digest of the tree's root node, 66 hexadecimal digits. Equal content has the
	// equal root.
	Root string
	// Parents has no id for the first commit, one for a usual commit, two for a merge.
	Parents []CommitID
	// Device and Message are what was recorded, often "".
	Device, Message string
}

// IsFirst reports whether c is the implied first commit of every page: empty, without parents.
func (c Commit) IsFirst() bool { return c.Generation == 0 }

func newCommit(c *commit.Commit) Commit {
	out := Commit{
		ID: CommitID(c.ID), Time: time.Unix(0, c.Timestamp).UTC(), Timestamp: c.Timestamp, Generation: c.Generation,
		Root: c.Root.String(), Device: c.Device, Message: c.Message,
	}
	for _, p := range c.Parents {
		out.Parents = append(out.Parents, CommitID(p))
	}
	return out
}

// Heads returns the commits without children that are durable, oldest first by (timestamp, id):
// never none, and one unless siblings wait to be merged. Errors: ErrClosed.
func (p *Page) Heads(context.Context) ([]Commit, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var heads []Commit
	for _, h := range p.store.Heads() {
		heads = append(heads, newCommit(h))
	}
	return heads, nil
}

// Commit returns the commit with the given id. Errors: ErrNotFound, ErrClosed, ErrCorrupt.
func (p *Page) Commit(ctx context.Context, id CommitID) (Commit, error) {
	c, err := p.durableCommit(ctx, commit.ID(id))
	if err != nil {
		return Commit{}, fmt.Errorf("read commit: %w", err)
	}
	return newCommit(c), nil
}

// Sender is the device that put a commit into the log of the cloud.
type Sender struct {
	// Device is the id of the device, as CloudInfo.Device has it: 32 hexadecimal digits, "" where
	// nobody knows, as of a commit that is not synced.
	Device string
	// Verified says that this device has read the entry of the log with the commit, which the other
	// one has signed. Else the device says so that made the checkpoint with which this one began.
	Verified bool
}

// Sender returns who put a commit into the log of the cloud. That is the device that made it,
// unless another one has sent it again, where a bucket had lost it. Errors: ErrNotFound, ErrClosed,
// ErrCorrupt.
func (p *Page) Sender(ctx context.Context, id CommitID) (out Sender, err error) {
	if _, err = p.durableCommit(ctx, commit.ID(id)); err == nil {
		err = p.enter()
	}
	if err != nil {
		return out, fmt.Errorf("read who sent a commit: %w", err)
	}
	defer p.leave()
	s, err := cloudsync.SenderOf(ctx, p.store, commit.ID(id))
	if err != nil {
		p.note(err)
		return out, fmt.Errorf("read who sent a commit: %w", err)
	}
	if s.Device != (seal.ID{}) {
		out = Sender{Device: s.Device.String(), Verified: s.Verified}
	}
	return out, nil
}

// durableCommit returns a commit once it is durable. Somebody asks for it by its id, who may be
// wrong.
func (p *Page) durableCommit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	return p.commitBy(ctx, id, p.store.Commit)
}

// commitBy returns a commit once it is durable, read with a method of the store.
func (p *Page) commitBy(ctx context.Context, id commit.ID, read func(context.Context, commit.ID) (*commit.Commit, error)) (*commit.Commit, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	c, err := read(ctx, id)
	if err != nil {
		p.note(err)
		return nil, err
	}
	return c, p.store.WaitDurable(c)
}

// Tag is a name for a commit. A tagged commit is kept.
type Tag struct {
	Name   string
	Commit CommitID
}

// Tag gives a commit a name, which moves when it was another's. name is 1 to 256 bytes of UTF-8, is
// not "HEAD", and contains no '~', no control character and no space. Nor does it read like another
// revision: "none", 4 to 64 hexadecimal digits, a time; tags of such a name that were made before,
// or elsewhere, stay and can be deleted. The zero id means the handle's head. When Tag returns nil
// it survives a crash. Errors: ErrNotFound (no such commit), ErrInvalid, ErrTooLarge, ErrClosed,
// ErrReadOnly.
func (p *Page) Tag(ctx context.Context, name string, id CommitID) error {
	if err := ValidateTag(name); err != nil {
		return err
	}
	c, release, err := p.pinFor(ctx, id)
	if err != nil {
		return fmt.Errorf("tag %q: %w", name, err)
	}
	defer release()
	defer p.leave()
	return p.store.SetTag(ctx, name, c.ID)
}

// pinFor enters the page and pins a commit; on nil the caller must release and leave.
func (p *Page) pinFor(ctx context.Context, id CommitID) (*commit.Commit, func(), error) {
	if err := p.enter(); err != nil {
		return nil, nil, err
	}
	c, release, err := p.pin(ctx, id)
	if err != nil {
		p.leave()
		return nil, nil, err
	}
	return c, release, nil
}

// DeleteTag takes a name away. Errors: ErrNotFound, ErrClosed, ErrReadOnly.
func (p *Page) DeleteTag(ctx context.Context, name string) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	return p.store.DeleteTag(ctx, name)
}

// Tags returns all tags sorted by name. Errors: ErrClosed, ErrCorrupt.
func (p *Page) Tags(ctx context.Context) ([]Tag, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	m, err := p.store.Tags(ctx)
	if err != nil {
		p.note(err)
		return nil, fmt.Errorf("read tags: %w", err)
	}
	tags := make([]Tag, 0, len(m))
	for name, id := range m {
		tags = append(tags, Tag{Name: name, Commit: CommitID(id)})
	}
	slices.SortFunc(tags, func(a, b Tag) int { return strings.Compare(a.Name, b.Name) })
	return tags, nil
}
