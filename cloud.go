package ledger

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/split"
)

// BucketOpener opens buckets of one scheme, such as gs for gs://bucket/prefix.
type BucketOpener = bucket.Opener

// SyncLimits bound what sync uses; 0 means no bound.
type SyncLimits cloudsync.Limits

// SyncOptions say how a repository with a cloud syncs. The zero value syncs all pages in the
// background, and has those come here that other devices make.
type SyncOptions struct {
	// Passphrase is that of the cloud, or of its key file, for a repository whose cloud was set
	// with one. It is copied.
	Passphrase []byte
	// Limits bound bandwidth and requests.
	Limits SyncLimits
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
	// Paused begins in pause; see Repository.PauseSync.
	Paused bool
	// Manual lets nothing sync by itself: only Sync, Prefetch, and reads of what is not held here
	// use the network.
	Manual bool
	// Merge has Sync merge the heads that it brings together also when Options.Merge.Manual is set.
	Merge bool
}

// Cloud name a cloud and its key. Exactly one of KeyFile, Passphrase and Plaintext is given.
type Cloud struct {
	// URL names the bucket: dir:PATH, or what Options.Buckets knows, such as gs://bucket/prefix.
	URL string
	// KeyFile is the file with the master key; see CreateKeyFile. Its path is remembered, not its
	// content.
	KeyFile string
	// KeyFilePassphrase is that of a key file which is under one. It is copied and not remembered,
	// as Passphrase.
	KeyFilePassphrase []byte
	// SharedKeyFile allows that others can read the key file.
	SharedKeyFile bool
	// Passphrase is that from which the master key is derived. It is copied and not remembered:
	// each Open needs it in Options.Sync.
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

// file returns what o has for the file `cloud`, with absolute paths.
func (o *Cloud) file() (*cloudFile, error) {
	ways := 0
	f := &cloudFile{url: o.URL, shared: o.SharedKeyFile, pin: strings.ToLower(o.BucketID)}
	if id, err := hex.DecodeString(f.pin); err != nil || len(id) != 0 && len(id) != seal.IDBytes {
		return nil, fmt.Errorf("name a cloud: bucket id %q is not %d hexadecimal digits: %w", o.BucketID, 2*seal.IDBytes, ErrInvalid)
	}
	if o.KeyFile != "" {
		ways, f.source = ways+1, keyInFile
	}
	if len(o.Passphrase) > 0 {
		ways, f.source = ways+1, keyPassphrase
	}
	if o.Plaintext {
		ways++
	}
	if ways != 1 {
		return nil, fmt.Errorf("name a cloud: want exactly one of a key file, a passphrase, and plaintext: %w", ErrInvalid)
	}
	var err error
	if f.url, err = absoluteURL(o.URL); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		from string
		to   *string
	}{{o.KeyFile, &f.keyFile}, {o.CredentialsFile, &f.credentials}} {
		if p.from == "" {
			continue
		}
		if *p.to, err = filepath.Abs(p.from); err != nil {
			return nil, fmt.Errorf("name a cloud: %w", err)
		}
	}
	return f, f.check()
}

// pass returns the passphrase of the cloud or of its key file.
func (o *Cloud) pass() secret.Bytes {
	if len(o.KeyFilePassphrase) > 0 {
		return secret.New(o.KeyFilePassphrase)
	}
	return secret.New(o.Passphrase)
}

// absoluteURL makes the path of a dir URL absolute, so that it means the same wherever the process
// is started.
func absoluteURL(url string) (string, error) {
	scheme, err := bucket.Scheme(url)
	if err != nil || scheme != "dir" {
		return url, err
	}
	path, err := filepath.Abs(strings.TrimPrefix(url, "dir:"))
	if err != nil {
		return "", fmt.Errorf("name a cloud: %w", err)
	}
	return "dir:" + path, nil
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
	r.cloud.mu.Lock()
	file, wanted, err := r.cloud.file, r.cloud.wanted, r.cloud.err
	r.cloud.mu.Unlock()
	switch {
	case file == nil && wanted != nil:
		file = wanted
	case file == nil:
		return CloudInfo{Err: err}, err != nil
	}
	info = CloudInfo{
		URL: file.url, KeyFile: file.keyFile, Passphrase: file.source == keyPassphrase, Plaintext: file.source == keyNone,
		CredentialsFile: file.credentials, Paused: file.paused, Err: err,
	}
	if file != wanted { // which gets a key of the device with the keyring
		info.Device = file.key.ID().String()
		if w, err := file.ring(); err != nil {
			info.Err = cmp.Or(info.Err, err)
		} else {
			info.BucketID, info.Algorithm = hexOf(w.BucketID), w.Algorithm.String()
		}
	}
	r.keeper.mu.Lock()
	info.ListErr = r.keeper.listErr
	r.keeper.mu.Unlock()
	return info, true
}

// SetCloud makes the repository one of the devices that share a bucket. The bucket is proved first
// to keep its promises (about 70 requests), and refused with a *BucketUnfitError when it does not.
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
	file, err := o.file()
	if err != nil {
		return CloudInfo{}, fmt.Errorf("set cloud: %w", err)
	}
	err = r.inCloudTurn(ctx, "set cloud", func(ctx context.Context) error { return r.setCloud(ctx, file, o.pass()) })
	if err != nil {
		return CloudInfo{}, err
	}
	info, _ := r.Cloud()
	return info, nil
}

// inCloudTurn calls fn for a call that changes which cloud there is, one at a time.
func (r *Repository) inCloudTurn(ctx context.Context, what string, fn func(context.Context) error) error {
	return r.change(ctx, what, false, func(ctx context.Context) error {
		release, err := r.cloud.take(ctx)
		if err != nil {
			return err
		}
		defer release()
		if err = fn(ctx); err != nil {
			// Pages that were taken from a cloud go on with the one that is remembered, also when
			// it was ctx that ended the change.
			if err := r.attachAll(context.WithoutCancel(ctx), false); err != nil {
				r.o.Logger.Warn("pages cannot be synced", "error", err)
			}
		}
		return err
	})
}

func (r *Repository) setCloud(ctx context.Context, file *cloudFile, pass secret.Bytes) error {
	ring, err := r.join(ctx, file, pass)
	if err != nil {
		return err
	}
	if err := r.leaveOthers(ctx, format.ID(ring.BucketID())); err != nil {
		return err
	}
	return r.adopt(ctx, file, pass, ring, false)
}

// adopt makes file the cloud of the repository. anyhow: see attach. The caller has the cloud's
// turn.
func (r *Repository) adopt(ctx context.Context, file *cloudFile, pass secret.Bytes, ring *seal.Keyring, anyhow bool) error {
	if err := r.takeCloud(file, pass, ring); err != nil {
		return err
	}
	return r.attachAll(ctx, anyhow)
}

// takeCloud is adopt without the pages.
func (r *Repository) takeCloud(file *cloudFile, pass secret.Bytes, ring *seal.Keyring) error {
	if err := r.disconnect(); err != nil {
		return err
	}
	r.cloud.writing.Lock()
	defer r.cloud.writing.Unlock()
	old, _ := r.cloud.get()
	var err error
	if file.key, err = seal.NewDeviceKey(nil); err != nil { // of this bucket: no two show that they have a device in common
		return err
	}
	if old != nil {
		file.paused, file.rules = old.paused, old.rules
		if there, err := old.ring(); err == nil && there.BucketID == ring.BucketID() {
			file.key = old.key
		}
	}
	file.tie, file.pin = layout.Tie(r.dir), ""
	if err := r.takeSecret(ring.ChunkingSecret()); err != nil {
		return err
	}
	if err := r.writeCloudFile(file); err != nil {
		return err
	}
	rec := r.readRecord(hexOf(ring.BucketID()))
	r.cloud.set(func(c *cloud) {
		c.file, c.wanted, c.pass, c.record, c.err = file, nil, pass, rec, nil
	})
	return nil
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

// join becomes a device of the bucket of file; see joining.join.
func (r *Repository) join(ctx context.Context, file *cloudFile, pass secret.Bytes) (*seal.Keyring, error) {
	j := &joining{openers: r.buckets(), clock: r.clock, stall: stallOf(&r.o), file: file, pass: pass}
	return j.join(ctx, true)
}

// joining is an attempt to become a device of a bucket.
type joining struct {
	openers bucket.Openers
	clock   clock.Clock
	stall   time.Duration
	file    *cloudFile
	pass    secret.Bytes
	bare, b bucket.Bucket // while join runs
}

// join opens the bucket of the file, makes or opens its keyring, and sets what the file remembers
// of it. With create, the bucket is proved to be fit, and gets a keyring when it has none.
func (j *joining) join(ctx context.Context, create bool) (*seal.Keyring, error) {
	b, err := openBucket(ctx, j.openers, j.file.url, bucket.OpenOptions{CredentialsFile: j.file.credentials, MustExist: !create}, j.stall)
	if err != nil {
		return nil, err
	}
	defer bucket.Close(b) // it was only asked: nothing is lost when that fails
	j.bare = patient(b, j.clock, j.stall)
	j.b = bucket.NewRetry(j.bare, bucket.RetryOptions{Clock: j.clock})
	ring, err := j.existing(ctx)
	if errors.Is(err, ErrNotFound) && create && j.file.pin == "" {
		return j.first(ctx)
	}
	if err == nil && create {
		err = j.probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	return ring, nil
}

// existing opens the keyring of the bucket. The error matches ErrNotFound when it has none.
func (j *joining) existing(ctx context.Context) (*seal.Keyring, error) {
	chain, err := cloudsync.ReadKeys(ctx, j.b)
	if errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("it has no keyring: %w", ErrNotFound)
	}
	if err == nil {
		err = j.file.checkPin(chain.Newest().BucketID)
	}
	if err != nil {
		return nil, err
	}
	master, err := masterKey(j.file, j.pass, chain)
	if err != nil {
		return nil, err
	}
	ring, err := chain.Open(master)
	if err != nil {
		return nil, keyError(err)
	}
	j.file.keys = chain.Rings()
	return ring, nil
}

// first makes the keyring of a bucket that is fit for one. Another device may be quicker.
func (j *joining) first(ctx context.Context) (*seal.Keyring, error) {
	master, err := masterKey(j.file, j.pass, nil)
	if err != nil {
		return nil, err
	}
	if err := j.probe(ctx); err != nil {
		return nil, err
	}
	if _, _, err := cloudsync.Connect(ctx, j.bare, master, true, nil); err != nil && !errors.Is(err, seal.ErrWrongKey) {
		return nil, fmt.Errorf("make the keys of the bucket: %w", keyError(err))
	}
	return j.existing(ctx) // with a passphrase, the quicker device's salt counts
}

func (j *joining) probe(ctx context.Context) error {
	report, err := bucket.Probe(ctx, j.bare, "")
	if err != nil {
		return fmt.Errorf("prove the bucket: %w", err)
	}
	return report.Err()
}

// UnsetCloud forgets the cloud. Nothing is deleted here or there: pages keep what they know of the
// bucket, so that setting it again goes on where it was. What was not fetched yet cannot be read
// until then. Without a cloud it does nothing. Errors: ErrReadOnly, ErrClosed, those of the file
// system and of ctx.
func (r *Repository) UnsetCloud(ctx context.Context) error {
	return r.inCloudTurn(ctx, "unset cloud", func(context.Context) error {
		if err := r.disconnect(); err != nil {
			return err
		}
		r.cloud.writing.Lock()
		defer r.cloud.writing.Unlock()
		if err := r.writeCloudFile(nil); err != nil {
			return err
		}
		r.cloud.set(func(c *cloud) { c.file, c.wanted, c.err, c.record = nil, nil, nil, &syncRecord{} })
		return nil
	})
}

// ProbePoint is one promise of a bucket that was put to the test: Err says how it was broken, nil
// that it was kept.
type ProbePoint = bucket.ProbePoint

// ProbeCloud proves with about 70 requests that the bucket at a URL keeps the promises that sync
// stands on, in names of its own that it removes. o may be nil. It needs no repository and no key.
// The points are those that were looked at; the error is a *BucketUnfitError when the bucket is
// unfit.
func ProbeCloud(ctx context.Context, url, credentialsFile string, o *Options) ([]ProbePoint, error) {
	b, err := openBucket(ctx, bucketsOf(o), url, bucket.OpenOptions{CredentialsFile: credentialsFile}, bucket.DefaultStall)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer bucket.Close(b) // see join
	report, err := bucket.Probe(ctx, patient(b, clock.System, bucket.DefaultStall), "")
	if err == nil {
		err = report.Err()
	}
	return report.Points, err
}

// CreateKeyFile makes a new master key and writes it to a new file that only its owner can read,
// durable when it returns nil. A file that is there is never overwritten (fs.ErrExist). Whoever has
// the file can read the cloud; without it nobody can.
func CreateKeyFile(path string) error { return CreateProtectedKeyFile(path, nil) }

// CreateProtectedKeyFile is CreateKeyFile for a file of which the key is sealed with a passphrase:
// Cloud.KeyFilePassphrase and SyncOptions.Passphrase are to have it. An empty one seals nothing.
func CreateProtectedKeyFile(path string, passphrase []byte) error {
	m, err := seal.NewMasterKey(nil)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	return seal.CreateKeyFile(path, m, secret.New(passphrase))
}

// KeyFileID returns 16 hexadecimal digits that tell the key in a key file from others and nothing
// else about it. passphrase is that of the file, nil for none. Errors: ErrCorrupt, ErrUnsupported,
// ErrKeyFilePassphrase, ErrWrongKey, those of the file system.
func KeyFileID(path string, shared bool, passphrase []byte) (string, error) {
	m, err := seal.ReadKeyFile(path, shared, secret.New(passphrase))
	if err != nil {
		return "", err
	}
	return keyID(m)
}
