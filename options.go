package ledger

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/limits"
)

// Defaults of Options.
const (
	// DefaultCacheBytes is the node cache of a repository.
	DefaultCacheBytes = 64 << 20
	// DefaultJournalBytes is what a transaction holds in memory before it spills to disk.
	DefaultJournalBytes = 16 << 20
)

// Options say how a repository is opened. The zero value, and a nil pointer, are useful.
type Options struct {
	// ReadOnly opens for reading: the lock is taken shared, nothing is written, and what is absent
	// is not created (ErrNoRepository, ErrNotFound). A writer and readers exclude each other.
	ReadOnly bool
	// MustExist makes Open fail with ErrNoRepository instead of creating a repository.
	MustExist bool
	// Mend makes the file `repository` anew when it is damaged, or missing beside pages: Open fails
	// with ErrCorrupt without it. It has the repository's id, and the secret with which values are
	// cut, which comes from the cloud if there is one: else values that are stored from then on
	// share no pieces with older ones.
	Mend bool
	// InMemory keeps everything in memory until Close. The directory given to Open is ignored.
	InMemory bool
	// LockTimeout is how long Open waits for the lock of the repository; 0 means not at all.
	LockTimeout time.Duration
	// CacheBytes is the size of the cache of tree nodes that all pages share; 0 means
	// DefaultCacheBytes.
	CacheBytes int64
	// JournalBytes is the memory that the changes of one transaction may take before they spill
	// into a temporary file; 0 means DefaultJournalBytes. Long values do not count: they stream.
	JournalBytes int64
	// SegmentBytes is the size at which a segment file is full; 0 means 64 MiB.
	SegmentBytes int64
	// Device is recorded in each commit made here. It may be empty; at most 256 bytes of UTF-8.
	Device string
	// Logger gets what is not returned to a caller, such as a torn tail that was set aside. Nil
	// discards.
	Logger *slog.Logger
	// Observe, when not nil, is told of commits and corruption, for metrics. It is called on the
	// goroutine of the call concerned, or on that which merges in the background, possibly on
	// several at once, must return soon, and must not call into the repository.
	Observe func(Event)
	// Merge says how heads come together. The zero value merges them in the background:
	// the last one wins.
	Merge MergeOptions
	// Upload returns of which keys of a page lengths in the cloud must tell less than they do. Nil
	// lets everything be compressed, and nothing go up twice. It is asked whenever a page begins to
	// sync, and must return soon. What is in the bucket already stays as it is. Each device goes by
	// its own rules.
	Upload func(ledger string, page PageID) []UploadRule
	// Buckets open buckets by the scheme of their URL, such as gcs.Opener of package cloudsync/gcs
	// for "gs" and s3.Opener of package cloudsync/s3 for "s3". That of dir:PATH is built in.
	Buckets map[string]bucket.Opener
	// Cloud is the bucket that the repository shares with other devices, and its key. Open asks the
	// bucket for nothing: the repository becomes a device of it in the background, or with the
	// first Sync, as SetCloud says, and remembers it. Nil means the cloud that is remembered, if
	// any. A cloud with another URL than the remembered one is refused with ErrConflict: SetCloud
	// changes it; one whose scheme Buckets has no opener for, with ErrUnsupported. The passphrases
	// are copied.
	Cloud *Cloud
	// Sync says how a repository with a cloud syncs. The zero value syncs all pages in the
	// background.
	Sync SyncOptions
	// Quota is how many bytes the pages may take on disk: when they take more, closed pages that
	// the cloud has are evicted, the one that was closed longest ago first (see admin.Evict).
	// It is looked at when a page is closed and every few minutes. 0 means no bound.
	Quota int64
	// FreeSpaceFloor is how many bytes stay free on the disk, in the same way. 0 means none.
	FreeSpaceFloor int64
	// ValueBytes is how many bytes of values that the cloud has stay in the pages that are open: of
	// more, those are dropped that were not read for longest, and come back when they are read (see
	// admin.EvictOptions). It is looked at every few minutes. 0 means no bound.
	ValueBytes int64
	// Collection says how garbage is collected by itself. The zero value collects it, a little at a
	// time.
	Collection CollectionOptions
	// Now tells the time for commit timestamps and page usage. Nil means the machine's clock.
	Now func() time.Time
}

// withDefaults returns o with every zero field that has a default replaced by it. o may be nil.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.Sync.Passphrase = bytes.Clone(c.Sync.Passphrase)
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.JournalBytes == 0 {
		c.JournalBytes = DefaultJournalBytes
	}
	c.Collection = c.Collection.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.Level(100)}))
	}
	return c
}

// Defaults of CollectionOptions.
const (
	// DefaultCollectInterval is the pause between two rounds of collection.
	DefaultCollectInterval = time.Minute
	// DefaultCollectTime is how long a round takes.
	DefaultCollectTime = 500 * time.Millisecond
	// DefaultCollectBytes is what a round deletes.
	DefaultCollectBytes = 64 << 20
)

// CollectionOptions say how garbage is collected by itself: in rounds, in the pages that are open,
// when something may have left garbage there, such as a transaction that was rolled back, or
// history that was given up. A page that is closed is collected when it is opened again, or by
// admin.Collect.
type CollectionOptions struct {
	// Off leaves it to admin.Collect.
	Off bool
	// Interval is the pause between two rounds; 0 means DefaultCollectInterval.
	Interval time.Duration
	// Time bounds a round: no step is begun later, and a step takes some milliseconds. 0 means
	// DefaultCollectTime.
	Time time.Duration
	// Bytes bounds what a round deletes, to the step; 0 means DefaultCollectBytes. When much of a
	// page is garbage its files are compacted, and what is written by that counts too: further
	// rounds do less for it.
	Bytes int64
	// NoCompact leaves compaction to admin.Compact.
	NoCompact bool
}

func (o CollectionOptions) withDefaults() CollectionOptions {
	o.Interval = cmp.Or(o.Interval, DefaultCollectInterval)
	o.Time = cmp.Or(o.Time, DefaultCollectTime)
	o.Bytes = cmp.Or(o.Bytes, DefaultCollectBytes)
	return o
}

// Validate reports options that cannot be right. Errors: ErrInvalid, ErrTooLarge.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"LockTimeout", int64(o.LockTimeout)}, {"CacheBytes", o.CacheBytes}, {"JournalBytes", o.JournalBytes}, {"SegmentBytes", o.SegmentBytes},
		{"Quota", o.Quota}, {"FreeSpaceFloor", o.FreeSpaceFloor}, {"ValueBytes", o.ValueBytes},
		{"Collection.Interval", int64(o.Collection.Interval)}, {"Collection.Time", int64(o.Collection.Time)}, {"Collection.Bytes", o.Collection.Bytes},
	} {
		if f.value < 0 {
			return fmt.Errorf("check options: %s is %d, want 0 or more: %w", f.name, f.value, ErrInvalid)
		}
	}
	if len(o.Device) > limits.MaxDeviceBytes {
		return fmt.Errorf("check options: Device has %d bytes, at most %d are allowed: %w", len(o.Device), limits.MaxDeviceBytes, ErrTooLarge)
	}
	if !utf8.ValidString(o.Device) {
		return fmt.Errorf("check options: Device is not UTF-8: %w", ErrInvalid)
	}
	if o.Sync.MinPoll < 0 || o.Sync.MaxPoll < 0 || o.Sync.Limits.UploadBytesPerSecond < 0 || o.Sync.Limits.DownloadBytesPerSecond < 0 || o.Sync.Limits.RequestsPerSecond < 0 {
		return fmt.Errorf("check options: a pause or limit of Sync is negative: %w", ErrInvalid)
	}
	if o.InMemory && o.ReadOnly {
		return fmt.Errorf("check options: InMemory and ReadOnly exclude each other: %w", ErrInvalid)
	}
	if o.Mend && o.ReadOnly {
		return fmt.Errorf("check options: Mend and ReadOnly exclude each other: %w", ErrInvalid)
	}
	return nil
}

// EventKind says what an Event reports. Kinds are only ever added.
type EventKind uint8

const (
	// EventCommit reports a commit that is durable.
	EventCommit EventKind = iota + 1
	// EventCommitFailed reports a commit that was refused by the disk; Err says why.
	EventCommitFailed
	// EventCorruption reports bytes that are not what was written; Err matches ErrCorrupt.
	EventCorruption
	// EventPageOpened reports that the store of a page was opened.
	EventPageOpened
	// EventPageClosed reports that the store of a page was closed.
	EventPageClosed
	// EventMerge reports a merge commit that is durable.
	EventMerge
	// EventMergeFailed reports heads that could not be merged; Err says why. It is tried again
	// later.
	EventMergeFailed
	// EventCollect reports garbage that was deleted: Changes counts its pieces and nodes.
	EventCollect
)

// String returns a short name, such as "commit".
func (k EventKind) String() string {
	switch k {
	case EventCommit:
		return "commit"
	case EventCommitFailed:
		return "commitFailed"
	case EventCorruption:
		return "corruption"
	case EventPageOpened:
		return "pageOpened"
	case EventPageClosed:
		return "pageClosed"
	case EventMerge:
		return "merge"
	case EventMergeFailed:
		return "mergeFailed"
	case EventCollect:
		return "collect"
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event is one thing that happened to a page.
type Event struct {
	Kind EventKind
	// Ledger and Page say where.
	Ledger string
	Page   PageID
	// Commit is the new commit of an EventCommit or EventMerge.
	Commit CommitID
	// Changes is the number of keys that the transaction of an EventCommit wrote or deleted, and
	// the number of conflicts that an EventMerge decided, and of pieces and nodes that an
	// EventCollect deleted.
	Changes int
	// Bytes is what the pieces and nodes of an EventCollect take in the segments until those are
	// compacted.
	Bytes int64
	// Duration is how long a commit took from the end of the closure, or the call of Commit, to
	// durability; for an EventMerge from the beginning of the merge of all heads.
	Duration time.Duration
	// Syncs and WrittenBytes are the totals of the page since it was opened; set for commits and
	// closing.
	Syncs, WrittenBytes uint64
	// Err is the cause of an EventCommitFailed, EventMergeFailed or EventCorruption.
	Err error
}
