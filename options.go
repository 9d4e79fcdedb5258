package ledger

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/session"
)

// Defaults of Options.
const (
	// DefaultCacheBytes is the size of the node cache of a repository.
	DefaultCacheBytes = 64 << 20
	// DefaultJournalBytes is the memory of a transaction before its changes go to the log.
	DefaultJournalBytes = 16 << 20
)

// Options say how a repository is opened. The zero value, and a nil pointer, are useful.
type Options struct {
	// ReadOnly opens for reading: Open takes a shared lock, writes nothing, and does not create a
	// missing repository or page (ErrNoRepository, ErrNotFound). A writer and readers exclude each
	// other.
	ReadOnly bool
	// MustExist makes Open fail with ErrNoRepository instead of creating a repository.
	MustExist bool
	// Mend rebuilds the file `repository` when it is damaged, or missing while there are pages;
	// without Mend, Open fails with ErrCorrupt. The file holds the repository's id, and the secret
	// with which values are cut. The secret is restored from the cloud; without a cloud it is new,
	// and values stored from then on share no pieces with older ones.
	Mend bool
	// InMemory keeps everything in memory until Close. The directory given to Open is ignored.
	InMemory bool
	// LockTimeout is how long Open waits for the lock of the repository; 0 means not at all.
	LockTimeout time.Duration
	// CacheBytes is the size of the cache of tree nodes that all pages share; 0 means
	// DefaultCacheBytes.
	CacheBytes int64
	// JournalBytes is the memory that the changes of one transaction may take before they go to the
	// page's log, as nodes of its tree; 0 means DefaultJournalBytes. Nodes that later changes of
	// the transaction replace are garbage. Long values do not count, since they are streamed.
	JournalBytes int64
	// SegmentBytes is the size at which a segment file is full; 0 means 64 MiB.
	SegmentBytes int64
	// Device is recorded in each commit made here. It may be empty; at most 256 bytes of UTF-8.
	Device string
	// Logger receives events that no call returns, such as a torn tail that was set aside. Nil
	// discards them.
	Logger *slog.Logger
	// Observe, when not nil, is called for commits, corruption and other events, for metrics. It
	// runs on the goroutine of the call concerned or of background work, possibly on several at
	// once. It must return soon, and must not call the repository.
	Observe func(Event)
	// MergeRules returns the rules by which the heads of a page are merged; nil means that the last
	// one wins for every key. It is called before each merge, on the merging goroutine, and must
	// return soon. Page.SetMergeRules adds to its rules.
	MergeRules func(ledger string, page PageID) []MergeRule
	// ManualMerge leaves several heads as they are until Page.Merge is called. Otherwise they are
	// merged in the background. With SyncOptions.Manual as well, call Sync again after Page.Merge,
	// or set SyncOptions.Merge. Otherwise devices that upload their merges only after others have
	// merged again may never reach one head.
	ManualMerge bool
	// Upload returns the keys of a page whose object lengths in the cloud must reveal less. Nil
	// compresses everything and uploads nothing twice. It is called whenever a page begins to sync,
	// and must return soon. Objects already in the bucket stay as they are. Each device applies its
	// own rules.
	Upload func(ledger string, page PageID) []UploadRule
	// Buckets maps the scheme of a URL to the opener of its buckets, such as "gs" to gcs.Opener of
	// package cloudsync/gcs and "s3" to s3.Opener of package cloudsync/s3. dir:PATH is built in.
	Buckets map[string]bucket.Opener
	// Cloud is the bucket that the repository shares with other devices, and its key; nil means the
	// stored cloud, if any. Open makes no request to the bucket: the repository joins it in the
	// background or at the first Sync, as with SetCloud, and stores the cloud. Open fails with
	// ErrConflict when the URL differs from that of the stored cloud (SetCloud changes the cloud),
	// and with ErrUnsupported when Buckets has no opener for the scheme. The passphrases are
	// copied.
	Cloud *Cloud
	// Sync says how a repository with a cloud syncs. The zero value syncs all pages in the
	// background.
	Sync SyncOptions
	// Quota is the limit in bytes for the disk space of all pages. Above it, closed pages that the
	// cloud has are evicted, the least recently closed first (see admin.Evict). The limit is
	// checked when a page is closed and every few minutes. 0 means no limit.
	Quota int64
	// FreeSpaceFloor is how many bytes to keep free on the disk, by the same means; 0 means none.
	FreeSpaceFloor int64
	// ValueBytes limits the bytes of values of open pages that the cloud has, too. Above it, the
	// least recently read values are dropped; reading one downloads it again (see
	// admin.EvictOptions). The limit is checked every few minutes. 0 means no limit.
	ValueBytes int64
	// Collection configures automatic garbage collection. The zero value collects in small steps.
	Collection CollectionOptions
	// Now returns the time for commit timestamps and page usage. Nil means the machine's clock.
	Now func() time.Time
}

// withDefaults returns o with every zero field that has a default replaced by it. o may be nil.
func (o *Options) withDefaults() Options {
	c := given(o)
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
	// DefaultCollectTime is the time limit of a round.
	DefaultCollectTime = 500 * time.Millisecond
	// DefaultCollectBytes limits the bytes that a round deletes.
	DefaultCollectBytes = 64 << 20
)

// CollectionOptions configure automatic garbage collection. It runs in rounds, in open pages where
// garbage is likely, for example after a rolled-back transaction or after history was given up. A
// closed page is collected when it is opened again, or by admin.Collect.
type CollectionOptions struct {
	// Off leaves collection to admin.Collect.
	Off bool
	// Interval is the pause between two rounds; 0 means DefaultCollectInterval.
	Interval time.Duration
	// Time limits a round: no step begins later, and a step takes some milliseconds. 0 means
	// DefaultCollectTime.
	Time time.Duration
	// Bytes limits what a round deletes, to the precision of a step; 0 means DefaultCollectBytes.
	// When much of a page is garbage, its files are compacted. Compaction's writes count too, and
	// reduce the work of later rounds.
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

// validate reports options that cannot be right. Errors: ErrInvalid, ErrTooLarge.
func (o *Options) validate() error {
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
	if err := session.ValidateDevice(o.Device); err != nil {
		return err
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

// EventKind says what an Event reports. New versions may add kinds.
type EventKind string

const (
	// EventCommit reports a commit that is durable.
	EventCommit EventKind = "commit"
	// EventCommitFailed reports a commit that the disk refused; Err says why.
	EventCommitFailed EventKind = "commitFailed"
	// EventCorruption reports bytes that differ from what was written; Err matches ErrCorrupt.
	EventCorruption EventKind = "corruption"
	// EventPageOpened reports that the store of a page was opened.
	EventPageOpened EventKind = "pageOpened"
	// EventPageClosed reports that the store of a page was closed.
	EventPageClosed EventKind = "pageClosed"
	// EventMerge reports a merge commit that is durable.
	EventMerge EventKind = "merge"
	// EventMergeFailed reports heads that could not be merged; Err says why. The merge is retried
	// later.
	EventMergeFailed EventKind = "mergeFailed"
	// EventCollect reports garbage that was deleted: Changes counts its pieces and nodes.
	EventCollect EventKind = "collect"
)

// Event is one thing that happened to a page.
type Event struct {
	Kind EventKind
	// Ledger and Page name the page.
	Ledger string
	Page   PageID
	// Commit is the new commit of an EventCommit or EventMerge.
	Commit CommitID
	// Changes is the number of keys that the transaction of an EventCommit wrote or deleted, of
	// conflicts that an EventMerge decided, or of pieces and nodes that an EventCollect deleted.
	Changes int
	// Bytes is the size of the pieces and nodes of an EventCollect in the segments until
	// compaction.
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
