package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Options say for which page. All of them are needed, but for what says otherwise.
type Options struct {
	Store  *storage.Store
	Bucket bucket.Bucket
	Sealer *seal.Sealer
	Names  format.PageNames
	// Fetcher fetches pieces of EAGER values that stand in packs of earlier entries and are not
	// held, and pieces that are about to lose their place. Only its FetchAll is called, which does
	// not come back to the Page. Without a Fetcher, an entry that needs such a piece fails with
	// base.ErrNeedsFetch.
	Fetcher *pack.Fetcher
	// Device is the fingerprint of this device: entries that carry it are its own. Zero: none are.
	Device format.ID
	// Announced takes what an entry of this device's own announces out of the value of the row
	// format.MetadataPacks, and returns the new value and which packs of the entry stood in the
	// row: their places have been recorded. It is called when an own entry was appended and the
	// process ended before it knew. nil: the row is left as it is, and all packs are read.
	Announced func(row []byte, b *format.Body) (value []byte, recorded []format.ID, err error)
	// Past gives what the bucket has of the page's past, through an entry of a number, for trees of
	// commits that were given up here and on which others have built. Without it such an entry
	// fails.
	Past func(ctx context.Context, through uint64) (Past, error)
	// Progress is told of the values that entries and checkpoints put, in bytes of what is read
	// from the bucket for them; nil: nobody is.
	Progress *progress.Tracker
}

// Page takes what a bucket has for one page. Its calls run one at a time.
type Page struct {
	o      Options
	page   [16]byte
	bounds bounds
	// givenUp are the commits of the rows storage.MetadataGivenUp, nil when they have not been
	// read; see PassedOver for passed.
	givenUp map[givenUpID]struct{}
	passed  map[commit.ID]bool
}

// bounds are those of memory and of batches.
type bounds struct {
	// places is how many places a step holds before they go to storage ahead of it: 120 bytes each.
	places int
	// missing bounds the pieces that are fetched at once, and waiting the values that wait for
	// them.
	missing, waiting int
	// known bounds how many parts of values are remembered as good; beyond, all are forgotten,
	// which costs time only.
	known int
	// scratch is how many bytes of trees that are not wanted may lie in a journal before it is made
	// anew.
	scratch int
	// ahead is how many commits of a checkpoint are one batch, and spool how many bytes of them are
	// held in memory.
	ahead, spool int
}

var defaultBounds = bounds{places: 32 << 10, missing: 4096, waiting: 1024, known: 64 << 10, scratch: 3 << 20, ahead: 1024, spool: spoolBytes}

// New returns the Page of a store. It reads nothing.
func New(o Options) *Page {
	return &Page{o: o, page: o.Store.Page(), bounds: defaultBounds, passed: map[commit.ID]bool{}}
}

// bucketID returns the id of the bucket, which positions carry.
func (p *Page) bucketID() format.ID { return format.ID(p.o.Sealer.Keyring().BucketID()) }

// Result says what was taken, and what it cost.
type Result struct {
	// Commits counts commits that were not here before.
	Commits int
	// Pieces counts pieces of values that came with the entries and their packs, and Missing those
	// that values need and nobody has sent; a piece may count more than once.
	Pieces, Missing int
	// Bytes are those of entries, packs and diffs that were read, as stored in the bucket as far as
	// that is known.
	Bytes int64
	// Nodes counts tree nodes that were made, and NodesRead those that were asked for.
	Nodes, NodesRead int
	// Condemned says that an entry condemned something.
	Condemned bool
	// Retention is what the last entry that speaks of it says, nil when none does.
	Retention *format.Retention
	// GivenUp are the commits that entries give up by name.
	GivenUp []commit.ID
}

func (r *Result) add(o Result) {
	r.Commits += o.Commits
	r.Pieces += o.Pieces
	r.Missing += o.Missing
	r.Bytes += o.Bytes
	r.Nodes += o.Nodes
	r.NodesRead += o.NodesRead
	r.Condemned = r.Condemned || o.Condemned
	r.GivenUp = append(r.GivenUp, o.GivenUp...)
	if o.Retention != nil {
		r.Retention = o.Retention
	}
}

// EntryError says which entry, checkpoint or pack is bad, and why. It matches base.ErrCorrupt.
type EntryError struct {
	// Object is its name in the bucket.
	Object string
	Err    error
}

// Error implements error.
func (e *EntryError) Error() string { return fmt.Sprintf("take in %s: %v", e.Object, e.Err) }

// Unwrap returns what is wrong.
func (e *EntryError) Unwrap() error { return e.Err }

// Is reports whether target is base.ErrCorrupt.
func (e *EntryError) Is(target error) bool { return target == base.ErrCorrupt }

// NeedsTreeError says that an entry builds on a commit that is known as history only: its tree must
// be built (BuildTree) before the entry can be taken. It matches base.ErrNeedsFetch.
type NeedsTreeError struct {
	// Object is the name of the entry.
	Object string
	// Commit is the one whose tree is needed.
	Commit commit.ID
}

// Error implements error.
func (e *NeedsTreeError) Error() string {
	return fmt.Sprintf("take in %s: the tree of commit %s is not here", e.Object, e.Commit)
}

// Is reports whether target is base.ErrNeedsFetch.
func (e *NeedsTreeError) Is(target error) bool { return target == base.ErrNeedsFetch }

// NeedsPlacesError says that an entry needs a piece that came into the log before the checkpoint
// with which the page began, which did not need it, or that is not where it was any more: the log
// must be searched for places (FindPlaces) before the entry can be taken. It matches
// base.ErrNeedsFetch.
type NeedsPlacesError struct {
	// Object is the name of the entry.
	Object string
	// Piece is what is needed.
	Piece object.Digest
	// Gone is why it, or another piece that the entry needs, could not be fetched from its place,
	// and matches base.ErrGone. The places of what is gone must be lost (LosePlaces) before the
	// search. Nil: it has no place.
	Gone error
}

// Error implements error.
func (e *NeedsPlacesError) Error() string {
	if e.Gone != nil {
		return fmt.Sprintf("take in %s: %v", e.Object, e.Gone)
	}
	return fmt.Sprintf("take in %s: the place of piece %s is not known", e.Object, e.Piece)
}

// Is reports whether target is base.ErrNeedsFetch.
func (e *NeedsPlacesError) Is(target error) bool { return target == base.ErrNeedsFetch }

// Unwrap returns why a piece could not be fetched.
func (e *NeedsPlacesError) Unwrap() error { return e.Gone }

// UnknownCommitError says that an entry builds on a commit that is not here. It stands within an
// *EntryError. Another device may have brought that commit with a checkpoint: see TakeHistory.
type UnknownCommitError struct {
	Commit commit.ID
	role   string // what it is for the entry
}

// Error implements error.
func (e *UnknownCommitError) Error() string {
	return fmt.Sprintf("%s %s is not here", e.role, e.Commit)
}

func unknown(role string, id commit.ID) error { return &fault{err: &UnknownCommitError{id, role}} }

// fault marks what is wrong with the object that is being taken in, as opposed to trouble of this
// device or of the network.
type fault struct {
	object string // another object than the one that is being taken in; empty: that one
	err    error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// bad returns a fault.
func bad(format string, args ...any) error { return &fault{err: fmt.Errorf(format, args...)} }

// badObject returns err as a fault of another object if it says that bytes are not what they should
// be, else as it is.
func badObject(object string, err error) error {
	var f *fault
	if errors.As(err, &f) {
		if f.object == "" {
			f.object = object
		}
		return err
	}
	if errors.Is(err, base.ErrCorrupt) {
		return &fault{object: object, err: err}
	}
	return err
}

func isFault(err error) bool {
	var f *fault
	return errors.As(err, &f)
}

// nameFault makes an *EntryError of a fault, which object has unless the fault names another one.
// Other errors it wraps.
func nameFault(object string, err error) error {
	var f *fault
	if errors.As(err, &f) {
		if f.object != "" {
			object = f.object
		}
		return &EntryError{Object: object, Err: err}
	}
	var n *NeedsTreeError
	if errors.As(err, &n) {
		n.Object = object
		return n
	}
	var m *NeedsPlacesError
	if errors.As(err, &m) {
		m.Object = object
		return m
	}
	return fmt.Errorf("take in %s: %w", object, err)
}
