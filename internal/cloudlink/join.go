package cloudlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/secret"
)

// absoluteURL makes the path of a dir URL absolute, so that it does not depend on the working
// directory.
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

// Joined is a bucket with an opened keyring, for Link.Adopt.
type Joined struct {
	file *file
	pass secret.Bytes
	ring *seal.Keyring
}

// BucketID returns the id of the bucket, 32 hexadecimal digits.
func (j *Joined) BucketID() string { return j.ring.BucketID().String() }

// Passphrase returns a copy of the passphrase that opened the keyring; empty for none.
func (j *Joined) Passphrase() []byte { return bytes.Clone(j.pass.Expose()) }

// Join opens the keyring of the bucket of c. It makes and changes nothing. Errors: base.ErrNotFound
// (the bucket has no keyring), base.ErrWrongKey, cloudsync.ErrBucketReplaced, those of the bucket
// and of ctx.
func Join(ctx context.Context, c *Cloud, openers bucket.Openers, clock clock.Clock, stall time.Duration) (*Joined, error) {
	f, err := c.file()
	if err != nil {
		return nil, err
	}
	j := &joining{openers: openers, clock: clock, stall: stall, file: f, pass: c.pass()}
	ring, err := j.join(ctx, false)
	if errors.Is(err, base.ErrNotFound) {
		return nil, fmt.Errorf("there is nothing of Ledger's at %s: %w", f.url, err)
	}
	if err != nil {
		return nil, err
	}
	return &Joined{f, j.pass, ring}, nil
}

// Adopt makes a joined bucket the cloud of the repository. The caller holds the cloud's turn.
func (l *Link) Adopt(ctx context.Context, j *Joined) error {
	return l.adopt(ctx, j.file, j.pass, j.ring, false)
}

// join joins the bucket of f; see joining.join.
func (l *Link) join(ctx context.Context, f *file, pass secret.Bytes, set bool) (*seal.Keyring, error) {
	j := &joining{openers: l.o.Openers, clock: l.o.Clock, stall: l.o.Stall, file: f, pass: pass}
	return j.join(ctx, set)
}

// joining is an attempt to join a bucket.
type joining struct {
	openers bucket.Openers
	clock   clock.Clock
	stall   time.Duration
	file    *file
	pass    secret.Bytes
	bare, b bucket.Bucket // while join runs
}

// join opens the bucket of the file, makes or opens its keyring, and sets the file's fields from
// it. With set, it tests the bucket, and makes a keyring when there is none and no id is given.
func (j *joining) join(ctx context.Context, set bool) (*seal.Keyring, error) {
	found := set && j.file.pin == ""
	b, err := j.open(ctx, true)
	if errors.Is(err, base.ErrNotFound) && found {
		if j.file.source == keyInFile { // a missing or wrong key file makes no directory
			if _, err := masterKey(j.file, j.pass, nil); err != nil {
				return nil, err
			}
		}
		b, err = j.open(ctx, false)
	}
	if err != nil {
		return nil, err
	}
	defer bucket.Close(b) // it was only read: an error loses nothing
	j.bare = bucket.NewMeter(b, bucket.MeterOptions{Clock: j.clock, Stall: j.stall})
	j.b = bucket.NewRetry(j.bare, bucket.RetryOptions{Clock: j.clock})
	ring, err := j.existing(ctx)
	if errors.Is(err, base.ErrNotFound) && found {
		return j.first(ctx)
	}
	if err == nil && set {
		err = j.probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	return ring, nil
}

// open opens the bucket of the file.
func (j *joining) open(ctx context.Context, mustExist bool) (bucket.Bucket, error) {
	return openBucket(ctx, j.openers, j.file.url, bucket.OpenOptions{CredentialsFile: j.file.credentials, MustExist: mustExist}, j.stall)
}

// existing opens the keyring of the bucket. The error matches base.ErrNotFound when there is none.
func (j *joining) existing(ctx context.Context) (*seal.Keyring, error) {
	chain, err := cloudsync.ReadKeys(ctx, j.b)
	if errors.Is(err, base.ErrNotFound) {
		return nil, fmt.Errorf("it has no keyring: %w", base.ErrNotFound)
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

// first tests the bucket and makes its keyring, unless another device is quicker.
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
	j.file.founded = true
	return j.existing(ctx) // with a passphrase, the quicker device's salt is used
}

func (j *joining) probe(ctx context.Context) error {
	_, err := bucket.Probe(ctx, j.bare, "")
	if _, unfit := errors.AsType[*bucket.UnfitError](err); err != nil && !unfit {
		return fmt.Errorf("prove the bucket: %w", err)
	}
	return err
}

// masterKey returns the key of a slot of the chain, or a key for the slot of a new keyring when
// chain is nil.
func masterKey(f *file, pass secret.Bytes, chain *seal.Chain) (seal.MasterKey, error) {
	switch f.source {
	case keyInFile:
		return seal.ReadKeyFile(f.keyFile, f.shared, pass)
	case keyPassphrase:
		if pass.IsZero() {
			return seal.MasterKey{}, fmt.Errorf("the key of the cloud comes from a passphrase, and none is given: %w", base.ErrWrongKey)
		}
		if chain == nil {
			return seal.NewKDF(nil).Derive(pass)
		}
		m, err := chain.Derive(pass)
		return m, keyError(err)
	}
	return seal.MasterKey{}, nil
}

// keyError makes errors about keys match base.ErrWrongKey.
func keyError(err error) error {
	if errors.Is(err, seal.ErrPlaintext) {
		return base.WithClass(err, base.ErrWrongKey)
	}
	return err
}

// Recover opens the keyring of the bucket of c with recovery words, adds a key to it, and writes
// the key to the new file c.KeyFile. It returns the changed keyring. Errors: those of keys.Recover.
func Recover(ctx context.Context, c *Cloud, openers bucket.Openers, words, label string) (ring *seal.Keyring, err error) {
	f, err := c.file()
	if err != nil {
		return nil, err
	}
	recovered, err := seal.ParseRecoveryWords([]byte(words))
	if err != nil {
		return nil, err
	}
	o := bucket.OpenOptions{CredentialsFile: f.credentials, MustExist: true}
	err = WithBucket(ctx, openers, f.url, o, func(b bucket.Bucket) error {
		ring, err = f.addKey(ctx, b, recovered, secret.New(c.KeyFilePassphrase), label)
		return err
	})
	return ring, err
}

// addKey makes the key file and adds its key to the bucket's keyring, which with opens.
func (f *file) addKey(ctx context.Context, b bucket.Bucket, with seal.MasterKey, pass secret.Bytes, label string) (*seal.Keyring, error) {
	chain, err := cloudsync.ReadKeys(ctx, bucket.NewRetry(b, bucket.RetryOptions{}))
	if err == nil {
		err = f.checkPin(chain.Newest().BucketID)
	}
	if err != nil {
		return nil, err
	}
	ring, err := chain.Open(with)
	if err != nil {
		return nil, keyError(err)
	}
	m := seal.NewMasterKey(nil)
	if err := seal.CreateKeyFile(f.keyFile, m, pass); err != nil {
		return nil, err
	}
	s := cloudsync.New(cloudsync.Options{Bucket: b, Keyring: ring, Manual: true})
	err = s.ChangeKeys(ctx, func(*seal.Keyring) (seal.Change, error) {
		return seal.Change{AddSlots: []seal.NewSlot{{Master: m, Label: label}}}, nil
	})
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(f.keyFile))
	}
	return s.Keyring(), nil
}
