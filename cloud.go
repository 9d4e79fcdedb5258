package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/split"
)

// SyncOptions say how a repository with a cloud syncs. The zero value syncs all pages in the
// background, pages made by other devices included.
type SyncOptions struct {
	// Passphrase opens the cloud, or its key file, when the cloud was set with a passphrase. It is
	// copied.
	Passphrase []byte
	// Limits bound the bytes and the requests of a second; a limit of 0 is none.
	Limits cloudsync.Limits
	// MinPoll and MaxPoll bound the pause between two checks for changes by other devices; 0 means
	// 2 seconds and 5 minutes.
	MinPoll, MaxPoll time.Duration
	// OnlyOpen limits background sync to the pages that the app has open, and does not look for
	// pages of other devices. Sync still does both.
	OnlyOpen bool
	// OpenPages is how many pages are held open to sync them, the most recently used ones; 0 means
	// 64. They sync as soon as something happens, the others every MaxPoll. A held page takes two
	// file descriptors.
	OpenPages int
	// Paused begins in pause. This pause is not stored, unlike that of Repository.PauseSync, which
	// also ends it.
	Paused bool
	// Manual turns background sync off: only Sync, Prefetch, and reads of values that this device
	// does not store use the network.
	Manual bool
	// Merge makes Sync merge the heads that it downloads, even with Options.ManualMerge.
	Merge bool
}

// Cloud names a bucket and its key. Exactly one of KeyFile, Passphrase and Plaintext is given.
type Cloud struct {
	// URL names the bucket: dir:PATH, or a scheme of Options.Buckets, such as gs://bucket/prefix.
	URL string
	// KeyFile is the file with the master key; see keys.CreateFile. The repository stores its path,
	// not its content.
	KeyFile string
	// KeyFilePassphrase opens a key file that is protected by a passphrase. It is copied, and not
	// stored, like Passphrase.
	KeyFilePassphrase []byte
	// SharedKeyFile allows a key file that other users can read.
	SharedKeyFile bool
	// Passphrase is the passphrase from which the master key is derived. It is copied and not
	// stored: each Open needs it, here or as SyncOptions.Passphrase.
	Passphrase []byte
	// Plaintext requests a cloud without encryption, which everyone with access to the bucket can
	// read.
	Plaintext bool
	// BucketID is the id that the bucket must have, 32 hexadecimal digits; "" for any. Only this id
	// lets a new device distinguish the intended bucket from another bucket with the same key.
	BucketID string
	// CredentialsFile is the file with credentials for the bucket; "" means those of the
	// environment. Its path is stored.
	CredentialsFile string
}

// CloudInfo describes the cloud of a repository.
type CloudInfo struct {
	// URL names the bucket; the path of a dir URL is absolute.
	URL string
	// BucketID is the random id of the bucket, 32 hexadecimal digits. BucketID, Algorithm and
	// Device are "" until the cloud of Options.Cloud is first reached.
	BucketID string
	// Algorithm is the cipher that seals the objects, such as "AES-256-GCM"; see Plaintext.
	Algorithm string
	// Plaintext reports that the bucket is not sealed: everyone who can read it can read all
	// content.
	Plaintext bool
	// KeyFile is the path of the master key; "" when there is none or it is derived from a
	// passphrase.
	KeyFile string
	// Passphrase reports that the master key is derived from a passphrase.
	Passphrase bool
	// CredentialsFile is the file with credentials for the bucket; "" when they come from the
	// environment.
	CredentialsFile string
	// Device is the id of this device, 32 hexadecimal digits, derived from the device's signing
	// key. A copied directory has another id.
	Device string
	// Paused reports that PauseSync has stopped background sync.
	Paused bool
	// Founded reports that the bucket had no keys when this process set the cloud, and that the
	// process made them: the bucket was empty, or the URL is not the intended one.
	Founded bool
	// ListErr is why the last background search for pages of other devices failed; nil when it
	// succeeded.
	ListErr error
	// Err says why the repository is not connected to its cloud or not yet a device of
	// Options.Cloud: for example, the key file is missing or the network is down. It is nil when
	// connected or not tried yet. When the stored cloud settings are damaged, only Err is set;
	// setting the cloud again repairs them.
	Err error
}

// Cloud describes the cloud of the repository, also that of Options.Cloud before it is first
// reached; ok is false when there is none. It makes no request to the bucket.
func (r *Repository) Cloud() (info CloudInfo, ok bool) {
	known, ok := r.cloud.Info()
	known.ListErr = r.keeper.ListErr()
	return CloudInfo(known), ok
}

// SetCloud makes the repository one of the devices that share a bucket. It first tests whether the
// bucket keeps its promises (about 70 requests), and fails with a *bucket.UnfitError if not. In an
// empty bucket it makes new keys, wrapped with the master key; otherwise it takes over the bucket's
// keys. Values written from then on are cut with the bucket's secret, so that equal content has
// equal pieces on all devices of the bucket.
//
// SetCloud uploads nothing; Sync or background sync does. When the repository has another cloud,
// all its content becomes unsynced and goes to the new cloud under the new cloud's keys. Content
// that only the old cloud has is fetched first, which may take long; when that fails, nothing is
// changed and the error matches ErrNeedsFetch. Of key and credentials only the paths are stored.
// After a crash the repository has the old or the new cloud, and SetCloud can be called again.
//
// With nil, SetCloud forgets the cloud, if there is one, and returns the zero CloudInfo. It makes
// no request, and deletes nothing on the device or in the bucket. Pages keep their sync state, so
// that setting the same cloud again continues; until then content that was not fetched cannot be
// read. Options.Cloud sets a cloud again at the next Open.
//
// Errors: ErrInvalid, ErrWrongKey, ErrUnsupported (scheme or bucket), ErrNeedsFetch, ErrNetwork,
// ErrCloudRolledBack (the repository's bucket is empty or missing, see admin.Reupload),
// ErrReadOnly, ErrClosed, those of the file system and of ctx.
func (r *Repository) SetCloud(ctx context.Context, o *Cloud) (CloudInfo, error) {
	what, set := "unset cloud", r.cloud.Unset
	if o != nil {
		c := cloudlink.Cloud(*o)
		what, set = "set cloud", func(ctx context.Context) error { return r.cloud.Set(ctx, &c) }
	}
	if err := r.inCloudTurn(ctx, what, set); err != nil {
		return CloudInfo{}, err
	}
	info, _ := r.Cloud()
	return info, nil
}

// inCloudTurn calls fn, which changes the cloud of the repository, one call at a time.
func (r *Repository) inCloudTurn(ctx context.Context, what string, fn func(context.Context) error) error {
	return r.change(ctx, what, false, func(ctx context.Context) error { return r.cloud.Turn(ctx, fn) })
}

// takeSecret sets the secret with which new values are cut.
func (r *Repository) takeSecret(s secret.Bytes) error {
	if string(r.identity.Load().Secret[:]) == string(s.Expose()) {
		return nil
	}
	next := *r.identity.Load()
	if n := copy(next.Secret[:], s.Expose()); n != len(next.Secret) {
		return fmt.Errorf("take over the secret for chunking: it has %d bytes: %w", n, ErrCorrupt)
	}
	if err := r.disk.WriteIdentity(&next); err != nil {
		return fmt.Errorf("take over the secret for chunking: %w", err)
	}
	r.identity.Store(&next)
	r.table.Store(split.NewTable(next.Secret[:]))
	return nil
}

// openers returns the openers of buckets; o may be nil.
func (o *Options) openers() bucket.Openers {
	if o == nil {
		return cloudlink.Openers(nil)
	}
	return cloudlink.Openers(o.Buckets)
}
