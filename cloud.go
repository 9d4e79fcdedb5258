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
// background, and has those come here that other devices make.
type SyncOptions struct {
	// Passphrase is that of the cloud, or of its key file, for a repository whose cloud was set
	// with one. It is copied.
	Passphrase []byte
	// Limits bound bandwidth and requests.
	Limits cloudsync.Limits
	// MinPoll and MaxPoll bound the pause between two looks for what other devices have written; 0:
	// 2 seconds and 5 minutes.
	MinPoll, MaxPoll time.Duration
	// OnlyOpen lets the pages rest that the app does not have open, and does not look for those of
	// other devices: Sync does both.
	OnlyOpen bool
	// OpenPages is how many pages are held open to sync them, those that were used last; 0: 64.
	// They sync as soon as something happens, the others every MaxPoll. A page that is held takes
	// two file descriptors.
	OpenPages int
	// Paused begins in pause, which ResumeSync ends and nothing remembers; see
	// Repository.PauseSync.
	Paused bool
	// Manual lets nothing sync by itself: only Sync, Prefetch, and reads of what is not held here
	// use the network.
	Manual bool
	// Merge has Sync merge the heads that it brings together also when Options.Merge.Manual is set.
	Merge bool
}

// Cloud names a bucket and its key. Exactly one of KeyFile, Passphrase and Plaintext is given.
type Cloud struct {
	// URL names the bucket: dir:PATH, or what Options.Buckets knows, such as gs://bucket/prefix.
	URL string
	// KeyFile is the file with the master key; see keys.CreateFile. Its path is remembered, not its
	// content.
	KeyFile string
	// KeyFilePassphrase is that of a key file which is under one. It is copied and not remembered,
	// as Passphrase.
	KeyFilePassphrase []byte
	// SharedKeyFile allows that others can read the key file.
	SharedKeyFile bool
	// Passphrase is that from which the master key is derived. It is copied and not remembered:
	// each Open is given it, here or as SyncOptions.Passphrase.
	Passphrase []byte
	// Plaintext asks for a cloud that everybody can read who can read the bucket.
	Plaintext bool
	// BucketID is the id that the bucket must have, 32 hexadecimal digits; "" for any. It tells a
	// bucket of the same key from the one that is meant: a device that has never seen the bucket
	// has nothing else to tell by.
	BucketID string
	// CredentialsFile is the file with credentials for the bucket; "" means those of the
	// environment. Its path is remembered.
	CredentialsFile string
}

// CloudInfo describes the cloud of a repository.
type CloudInfo struct {
	// URL names the bucket; the path of a dir URL is absolute.
	URL string
	// BucketID is the random id of the bucket, 32 hexadecimal digits; "" while the cloud of
	// Options.Cloud was not reached yet. Algorithm and Device are empty then, too.
	BucketID string
	// Algorithm is how its objects are sealed, such as "AES-256-GCM"; see Plaintext.
	Algorithm string
	// Plaintext reports that the bucket is not sealed: who can read it can read everything.
	Plaintext bool
	// KeyFile is where the master key is; "" when there is none or it comes from a passphrase.
	KeyFile string
	// Passphrase reports that the master key comes from one.
	Passphrase bool
	// CredentialsFile is the file with credentials for the bucket; "" when they come from the
	// environment.
	CredentialsFile string
	// Device is the id of this device, 32 hexadecimal digits: it follows from the key with which
	// the device signs. A copied directory has another one.
	Device string
	// Paused reports that background sync is paused for good; see Repository.PauseSync.
	Paused bool
	// Founded reports that the bucket had no keys when this process set the cloud, and has those
	// that it made: it was empty, or its URL is not the one that was meant.
	Founded bool
	// ListErr says why the pages of other devices could not be looked for the last time in the
	// background; nil when they could.
	ListErr error
	// Err says why the cloud could not be connected, such as a key file that is not there, or a
	// network, where the repository has yet to become a device of Options.Cloud; nil when it is or
	// was not tried yet. When what is remembered of the cloud is damaged, nothing else is known,
	// and setting it again mends it.
	Err error
}

// Cloud describes the cloud of the repository, the one of Options.Cloud before it was reached, too;
// ok is false when it has none. It asks the bucket for nothing.
func (r *Repository) Cloud() (info CloudInfo, ok bool) {
	known, ok := r.cloud.Info()
	known.ListErr = r.keeper.ListErr()
	return CloudInfo(known), ok
}

// SetCloud makes the repository one of the devices that share a bucket. The bucket is proved first
// to keep its promises (about 70 requests), and refused with a *bucket.UnfitError when it does not.
// When nothing is in it yet, its keys are made, all of them new, and wrapped with the master key;
// else they are taken over. Values that are written from then on are cut with the bucket's secret,
// so that equal content has equal pieces on all its devices.
//
// Setting a cloud uploads nothing; Sync does, or the background. When the repository has another
// cloud already, everything becomes unsynced and goes to the new one under its own keys. What is
// only in the old cloud is fetched before, which may take long; when that cannot be had, nothing is
// changed and the error matches ErrNeedsFetch. Only the paths of key and credentials are
// remembered. After a crash the repository has either cloud, and setting it again is safe.
//
// Errors: ErrInvalid, ErrWrongKey, ErrUnsupported (scheme or bucket), ErrNeedsFetch, ErrNetwork,
// ErrReadOnly, ErrClosed, those of the file system and of ctx.
func (r *Repository) SetCloud(ctx context.Context, o *Cloud) (CloudInfo, error) {
	c := cloudlink.Cloud(*o)
	err := r.inCloudTurn(ctx, "set cloud", func(ctx context.Context) error { return r.cloud.Set(ctx, &c) })
	if err != nil {
		return CloudInfo{}, err
	}
	info, _ := r.Cloud()
	return info, nil
}

// inCloudTurn calls fn for a call that changes which cloud there is, one at a time.
func (r *Repository) inCloudTurn(ctx context.Context, what string, fn func(context.Context) error) error {
	return r.change(ctx, what, false, func(ctx context.Context) error { return r.cloud.Turn(ctx, fn) })
}

// takeSecret has values that are written from now on cut with another secret.
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

// UnsetCloud forgets the cloud. Nothing is deleted here or there: pages keep what they know of the
// bucket, so that setting it again goes on where it was. What was not fetched yet cannot be read
// until then. Without a cloud it does nothing. Errors: ErrReadOnly, ErrClosed, those of the file
// system and of ctx.
func (r *Repository) UnsetCloud(ctx context.Context) error {
	return r.inCloudTurn(ctx, "unset cloud", r.cloud.Unset)
}

// openers returns the openers of buckets; o may be nil.
func (o *Options) openers() bucket.Openers {
	if o == nil {
		return cloudlink.Openers(nil)
	}
	return cloudlink.Openers(o.Buckets)
}
