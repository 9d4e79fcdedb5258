package metabase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ledgerd/ledger/internal/base"
)

// Mode is the set of operations that a File allows.
type Mode uint8

// The modes.
const (
	ReadWrite Mode = iota
	ReadOnly
	// Degraded is for a node that works without its metabase: every use fails with ErrDegradedMode.
	Degraded
)

// lockWait is how long OpenFile waits for another process to release the file.
const lockWait = time.Second

// FileOptions are options of OpenFile. The zero value opens for reading and writing in epoch 0.
type FileOptions struct {
	Mode Mode
	// Epoch returns the present epoch. Each View and Update calls it once. It may be nil.
	Epoch func() uint64
	// NoSync skips the sync of each commit, for files that can be rebuilt.
	NoSync bool
}

// File is a metabase in a bbolt file. It is safe for concurrent use: any number of calls of View
// can run during one Update.
type File struct {
	path string
	o    FileOptions

	mu     sync.RWMutex // held shared by transactions, exclusively by SetMode and Close
	mode   Mode         // guarded by mu
	closed bool         // guarded by mu
	bolt   *bbolt.DB    // guarded by mu; nil in mode Degraded
	file   *os.File     // guarded by mu; bbolt opens and closes it

	// damage is the first damage found. Every later call returns it.
	damage atomic.Pointer[base.CorruptError]
	// stuck is set when bbolt could not end a transaction and so never releases its locks.
	stuck atomic.Bool
}

// OpenFile opens the file at path. It reads the whole file to verify the structure. In mode
// ReadWrite it creates an absent file, migrates an older version, and counts objects when counters
// are absent. In mode ReadOnly it changes nothing, so a file of an older version has no searches
// (ErrOldVersion). It waits at most a second for another process. Errors: *VersionError,
// *base.CorruptError, base.ErrLocked, those of ctx and the file system.
func OpenFile(ctx context.Context, path string, o FileOptions) (*File, error) {
	f := &File{path: path, o: o}
	if err := f.start(ctx, o.Mode); err != nil {
		return nil, fmt.Errorf("open metabase %s: %w", path, err)
	}
	return f, nil
}

// start opens the file in a mode. The caller holds f.mu, unless f is new.
func (f *File) start(ctx context.Context, mode Mode) error {
	f.mode = mode
	if mode == Degraded {
		return nil
	}
	if err := f.openBolt(); err != nil {
		return err
	}
	if err := f.begin(ctx); err != nil {
		return errors.Join(err, f.stop())
	}
	return nil
}

// openBolt verifies the file and opens it with bbolt.
func (f *File) openBolt() (err error) {
	info, err := os.Stat(f.path)
	if err == nil && (info.Size() > 0 || f.mode == ReadOnly) {
		if err := f.checkFile(info.Size()); err != nil {
			return err
		}
	}
	defer f.guard(&err)
	f.bolt, err = bbolt.Open(f.path, 0o600, &bbolt.Options{
		Timeout: lockWait, ReadOnly: f.mode == ReadOnly, FreelistType: bbolt.FreelistMapType, NoSync: f.o.NoSync, NoGrowSync: f.o.NoSync,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			file, err := os.OpenFile(name, flag, mode)
			f.file = file
			return file, err
		},
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return &base.LockedError{Path: f.path, Waited: lockWait}
	}
	if err != nil {
		return boltError(err)
	}
	return nil
}

// begin reads the version of an opened file. In mode ReadWrite it migrates to the newest version.
func (f *File) begin(ctx context.Context) error {
	if f.mode == ReadOnly {
		return f.view(ctx, func(*View) error { return nil })
	}
	if err := f.update(ctx, func(t *Tx) error { return t.initialize(ctx) }); err != nil {
		return err
	}
	return f.migrate(ctx)
}

// initialize creates the buckets and rows that every file has.
func (t *Tx) initialize(ctx context.Context) error {
	_, versioned, err := t.info(ctx, infoVersion)
	if err != nil {
		return err
	}
	if !versioned {
		all, err := collect(t.tree.names(ctx, nil, nil))
		if err != nil {
			return err
		}
		for _, name := range all {
			if len(name) != 1 || !slices.Contains(staticKinds, kind(name[0])) {
				return corrupt(in(kindInfo), []byte(infoVersion), "a version", "none beside other buckets")
			}
		}
	}
	bolt, ok := t.tree.(boltTree)
	for _, k := range staticKinds {
		if ok {
			if _, err := bolt.tx.CreateBucketIfNotExists([]byte{byte(k)}); err != nil {
				return boltError(err)
			}
		}
	}
	if !versioned {
		if err := t.setInfo(ctx, infoVersion, newestVersion); err != nil {
			return err
		}
	}
	for _, counter := range []string{infoPhysical, infoLogical} {
		if has, err := t.has(ctx, in(kindInfo), []byte(counter)); err != nil || !has {
			if err != nil {
				return err
			}
			return t.SyncCounters(ctx)
		}
	}
	return nil
}

// View calls fn with the last committed state. fn must not call Update. Errors: those of fn,
// ErrDegradedMode, base.ErrClosed.
func (f *File) View(ctx context.Context, fn func(*View) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if err := f.usable(ReadOnly); err != nil {
		return err
	}
	return f.view(ctx, fn)
}

// Update calls fn and commits its changes when fn returns nil. The changes are durable when Update
// returns nil. Updates run one at a time. Errors: those of fn, ErrReadOnlyMode, ErrDegradedMode,
// base.ErrClosed, base.ErrNoSpace.
func (f *File) Update(ctx context.Context, fn func(*Tx) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if err := f.usable(ReadWrite); err != nil {
		return err
	}
	return f.update(ctx, fn)
}

func (f *File) usable(want Mode) error {
	switch {
	case f.closed:
		return fmt.Errorf("use metabase: %w", base.ErrClosed)
	case f.mode == Degraded:
		return ErrDegradedMode
	case want == ReadWrite && f.mode != ReadWrite:
		return ErrReadOnlyMode
	}
	if d := f.damage.Load(); d != nil {
		return d
	}
	return nil
}

func (f *File) view(ctx context.Context, fn func(*View) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tx, err := f.beginTx(false)
	if err != nil {
		return err
	}
	defer f.end(&err, tx)
	defer f.caught(&err)
	v := f.newView(tx)
	if err := v.readVersion(ctx); err != nil {
		return err
	}
	return fn(v)
}

func (f *File) update(ctx context.Context, fn func(*Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tx, err := f.beginTx(true)
	if err != nil {
		return err
	}
	defer f.end(&err, tx)
	defer f.caught(&err)
	t := &Tx{*f.newView(tx)}
	if err := t.readVersion(ctx); err != nil {
		return err
	}
	if err := fn(t); err != nil {
		return err
	}
	return f.commit(tx)
}

func (f *File) beginTx(write bool) (tx *bbolt.Tx, err error) {
	defer f.guard(&err)
	if tx, err = f.bolt.Begin(write); err != nil {
		return nil, fmt.Errorf("use metabase: %w", err)
	}
	return tx, nil
}

func (f *File) commit(tx *bbolt.Tx) (err error) {
	defer f.guard(&err)
	if d := f.damage.Load(); d != nil {
		return d // this transaction found the damage and fn ignored the error
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit metabase: %w", boltError(err))
	}
	return nil
}

// end rolls tx back unless it has ended. On a damaged file bbolt may panic here too; it then keeps
// its locks.
func (f *File) end(err *error, tx *bbolt.Tx) {
	var end error
	func() {
		defer f.guard(&end)
		end = tx.Rollback()
	}()
	if end == nil || errors.Is(end, berrors.ErrTxClosed) {
		return
	}
	f.stuck.Store(true)
	*err = errors.Join(*err, fmt.Errorf("end transaction: %w", end))
}

func (f *File) newView(tx *bbolt.Tx) *View {
	v := &View{tree: boltTree{tx, f}, local: true}
	if f.o.Epoch != nil {
		v.epoch = f.o.Epoch()
	}
	return v
}

// Mode returns the mode of the file.
func (f *File) Mode() Mode {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.mode
}

// SetMode waits for running transactions and opens the file again in another mode. On failure the
// file is in mode Degraded. Errors: as OpenFile.
func (f *File) SetMode(ctx context.Context, mode Mode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("set mode: %w", base.ErrClosed)
	}
	if mode == f.mode {
		return nil
	}
	err := f.stop()
	if err == nil {
		err = f.start(ctx, mode)
	}
	if err != nil {
		f.mode = Degraded
		return fmt.Errorf("set mode of metabase %s: %w", f.path, err)
	}
	return nil
}

// stop closes the file. When bbolt holds its own locks, its Close would never return. stop then
// closes only the descriptor, which releases the lock on the file; the mapping remains until the
// process ends.
func (f *File) stop() (err error) {
	if f.bolt == nil {
		return nil
	}
	defer func() { f.bolt = nil }()
	if f.stuck.Load() {
		return f.file.Close()
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.guard(&err)
	return f.bolt.Close()
}

// Close waits for running transactions and closes the file. It is idempotent.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	if err := f.stop(); err != nil {
		return fmt.Errorf("close metabase %s: %w", f.path, err)
	}
	return nil
}

// ShardID returns the id that the node gave to the store, or nil when it has none.
func (v *View) ShardID(ctx context.Context) ([]byte, error) {
	b, _, err := v.tree.get(ctx, in(kindInfo), []byte(infoShard))
	return bytes.Clone(b), err
}

// SetShardID sets the shard id of a file. Errors: base.ErrUnsupported on a page.
func (t *Tx) SetShardID(ctx context.Context, id []byte) error {
	if !t.local {
		return fmt.Errorf("set shard id: it is of one device and does not merge: %w", base.ErrUnsupported)
	}
	return t.tree.put(ctx, in(kindInfo), []byte(infoShard), id)
}
