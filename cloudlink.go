package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/dir"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/secret"
)

// cloud is what a repository has of its cloud.
type cloud struct {
	turn   chan struct{} // holds one token: one at a time connects, sets, forgets or uploads anew
	saving chan struct{} // holds one token: one at a time writes the record

	writing sync.Mutex // held by who replaces the file, with mu for as long as it is replaced here

	mu     sync.Mutex
	file   *cloudFile     // guarded by mu; nil without a cloud, else not changed but replaced
	wanted *cloudFile     // guarded by mu; the one of Options.Cloud, nil once the repository is a device of it
	link   *cloudLink     // guarded by mu; nil while not connected
	record *syncRecord    // guarded by mu; what is remembered from one run to the next
	err    error          // guarded by mu; why it could not be connected the last time
	failed failure        // guarded by mu; of the last Sync that did not come to any page
	pass   secret.Bytes   // guarded by mu; the passphrase, where the key comes from one
	watch  chan struct{}  // guarded by mu; closed at the next change of file, link or err
	saver  sync.WaitGroup // the goroutine that saves the record
}

// failure is why something failed, and when; zero: it has not.
type failure struct {
	err error
	at  time.Time
}

// newCloud takes the cloud and the passphrases out of o, the repository's own copy: where options
// are kept, fmt would print them. Errors: those of what o.Cloud says.
func newCloud(o *Options) (*cloud, error) {
	c := &cloud{turn: make(chan struct{}, 1), saving: make(chan struct{}, 1), record: &syncRecord{}, watch: make(chan struct{})}
	if len(o.Sync.Passphrase) > 0 {
		c.pass = secret.New(o.Sync.Passphrase)
		clear(o.Sync.Passphrase)
		o.Sync.Passphrase = nil
	}
	if o.Cloud == nil {
		return c, nil
	}
	var err error
	if c.wanted, err = o.Cloud.file(); err != nil {
		return nil, err
	}
	if pass := o.Cloud.pass(); !pass.IsZero() {
		c.pass = pass
	}
	o.Cloud = nil
	return c, nil
}

// cloudLink is the connection to a bucket whose keyring is open.
type cloudLink struct {
	bucket *lateBucket
	own    *bucket.Meter // counts the requests that are not the syncer's
	ring   *seal.Keyring
	syncer *cloudsync.Syncer
	saved  cloudsync.Metrics // guarded by cloud.mu; what of the figures is in the record
	ended  bucket.Counts     // guarded by cloud.mu; likewise of own
}

// id returns the bucket's id.
func (l *cloudLink) id() format.ID { return format.ID(l.ring.BucketID()) }

// get returns the file and the link.
func (c *cloud) get() (*cloudFile, *cloudLink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file, c.link
}

// broken returns why the file that says which cloud there is cannot be used, nil when it can or
// there is none.
func (c *cloud) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		return nil
	}
	return c.err
}

// set changes what is guarded and tells who watches.
func (c *cloud) set(fn func(*cloud)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(c)
	close(c.watch)
	c.watch = make(chan struct{})
}

// take waits for the token that release gives back.
func (c *cloud) take(ctx context.Context) (release func(), err error) {
	select {
	case c.turn <- struct{}{}:
		return func() { <-c.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// buckets returns the openers of all schemes that the app has linked, and of dir.
func (r *Repository) buckets() bucket.Openers {
	return bucketsOf(&r.o)
}

// bucketsOf is buckets for options that may be nil.
func bucketsOf(o *Options) bucket.Openers {
	all := bucket.Openers{"dir": openDir}
	if o == nil {
		return all
	}
	for scheme, open := range o.Buckets {
		all[scheme] = open
	}
	return all
}

// stallOf returns for how long, up to twice that, a bucket may let nothing happen; 0: for ever,
// since it is a test that makes the time.
func stallOf(o *Options) time.Duration {
	if o.testing != nil && o.testing.clock != nil {
		return 0
	}
	return bucket.DefaultStall
}

// patient returns b with that bound.
func patient(b bucket.Bucket, c clock.Clock, stall time.Duration) bucket.Bucket {
	if stall <= 0 {
		return b
	}
	return bucket.NewPatient(b, c, stall)
}

// errNoAnswer ends the opening of a bucket that takes too long.
var errNoAnswer = fmt.Errorf("the store does not answer: %w", base.ErrNetwork)

// openBucket opens a bucket, which may take up to twice stall: what a store has to be asked for
// that is little.
func openBucket(ctx context.Context, openers bucket.Openers, url string, o bucket.OpenOptions, stall time.Duration) (bucket.Bucket, error) {
	bounded := ctx
	if stall > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeoutCause(ctx, 2*stall, errNoAnswer)
		defer cancel()
	}
	b, err := openers.Open(bounded, url, o)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil && !errors.Is(err, errNoAnswer) {
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return b, err
}

// openDir opens a bucket in a directory.
func openDir(ctx context.Context, url string, o bucket.OpenOptions) (bucket.Bucket, error) {
	return dir.Open(ctx, url[len("dir:"):], dir.Options{MustExist: o.MustExist})
}

// lateBucket opens its bucket when it is first used: that the network, a disk or credentials are
// missing is then trouble of a request, which is tried again, and none of opening a repository.
type lateBucket struct {
	url  string
	open func(context.Context) (bucket.Bucket, error)
	turn chan struct{}

	mu     sync.Mutex
	b      bucket.Bucket // guarded by mu
	closed bool          // guarded by mu
}

func newLateBucket(url string, open func(context.Context) (bucket.Bucket, error)) *lateBucket {
	return &lateBucket{url: url, open: open, turn: make(chan struct{}, 1)}
}

func (l *lateBucket) opened() (bucket.Bucket, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b, l.closed
}

// get returns the bucket, opened. The error is a *bucket.Error.
func (l *lateBucket) get(ctx context.Context, op bucket.Op, name string) (bucket.Bucket, error) {
	b, closed := l.opened()
	if b != nil && !closed {
		return b, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, &bucket.Error{Op: op, Name: name, Class: bucket.ClassCanceled, Err: context.Cause(ctx)}
	}
	if b, closed = l.opened(); closed {
		return nil, &bucket.Error{Op: op, Name: name, Class: bucket.ClassOther, Err: base.ErrClosed}
	}
	if b != nil {
		return b, nil
	}
	b, err := l.open(ctx)
	if errors.Is(err, base.ErrNotFound) {
		// A disk that is not there may come back: that is no answer about the object.
		return nil, &bucket.Error{Op: op, Name: name, Class: bucket.ClassRetryable, Err: base.WithClass(errors.New(err.Error()), fs.ErrNotExist)}
	}
	if err != nil {
		return nil, bucket.NewError(ctx, op, name, false, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = b
	return b, nil
}

// PutIfAbsent implements bucket.Bucket.
func (l *lateBucket) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	b, err := l.get(ctx, bucket.OpPut, name)
	if err != nil {
		return err
	}
	return b.PutIfAbsent(ctx, name, size, content)
}

// Get implements bucket.Bucket.
func (l *lateBucket) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	b, err := l.get(ctx, bucket.OpGet, name)
	if err != nil {
		return bucket.Object{}, err
	}
	return b.Get(ctx, name, off, n)
}

// List implements bucket.Bucket.
func (l *lateBucket) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	b, err := l.get(ctx, bucket.OpList, prefix)
	if err != nil {
		return nil, err
	}
	return b.List(ctx, after, prefix, limit)
}

// Delete implements bucket.Bucket.
func (l *lateBucket) Delete(ctx context.Context, name string) error {
	b, err := l.get(ctx, bucket.OpDelete, name)
	if err != nil {
		return err
	}
	return b.Delete(ctx, name)
}

// String implements bucket.Bucket.
func (l *lateBucket) String() string { return l.url }

// Close closes the bucket, if it was opened. Later requests fail.
func (l *lateBucket) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	b := l.b
	l.b = nil
	return bucket.Close(b)
}

// connect returns the link to the bucket, making it when there is none. It asks the bucket for
// nothing, unless the repository has yet to become a device of it. Errors: those of SetCloud then;
// ErrNoCloud, ErrReadOnly, ErrWrongKey, ErrCorrupt, those of ctx and of reading the key file.
func (r *Repository) connect(ctx context.Context) (*cloudLink, error) {
	for {
		r.cloud.mu.Lock()
		link, changed := r.cloud.link, r.cloud.watch
		r.cloud.mu.Unlock()
		if link != nil {
			return link, nil
		}
		select {
		case r.cloud.turn <- struct{}{}:
			defer func() { <-r.cloud.turn }()
			return r.connectInTurn(ctx)
		case <-changed: // who has the turn may have made a link, and wait for what the caller does
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to the cloud: %w", ctx.Err())
		}
	}
}

// connectInTurn is connect for who has the cloud's turn.
func (r *Repository) connectInTurn(ctx context.Context) (*cloudLink, error) {
	r.cloud.mu.Lock()
	file, wanted, link, broken := r.cloud.file, r.cloud.wanted, r.cloud.link, r.cloud.err
	r.cloud.mu.Unlock()
	switch {
	case link != nil:
		return link, nil
	case file == nil && wanted != nil && !r.o.ReadOnly:
		if err := r.joinWanted(ctx, wanted); err != nil {
			return nil, fmt.Errorf("connect to the cloud %s: %w", wanted.url, err)
		}
		return r.connectInTurn(ctx)
	case file == nil && broken != nil:
		return nil, fmt.Errorf("connect to the cloud: %w", broken)
	case file == nil:
		return nil, fmt.Errorf("connect to the cloud: %w", ErrNoCloud)
	case r.o.ReadOnly:
		return nil, fmt.Errorf("connect to the cloud: the repository is open for reading: %w", ErrReadOnly)
	}
	link, err := r.newLink(file)
	r.cloud.set(func(c *cloud) { c.link, c.err = link, err })
	if err != nil {
		return nil, fmt.Errorf("connect to the cloud %s: %w", file.url, err)
	}
	if !r.o.Sync.Manual {
		r.startSaving(link)
	}
	return link, nil
}

// newLink opens the keyring that the file remembers, and makes the syncer.
func (r *Repository) newLink(file *cloudFile) (*cloudLink, error) {
	chain, err := file.chain()
	if err != nil {
		return nil, err
	}
	master, err := r.masterKey(file, chain)
	if err != nil {
		return nil, err
	}
	ring, err := chain.Open(master)
	if err != nil {
		return nil, keyError(err)
	}
	if err := r.takeSecret(ring.ChunkingSecret()); err != nil { // Options.Mend has made another
		return nil, err
	}
	b := newLateBucket(file.url, func(ctx context.Context) (bucket.Bucket, error) {
		return r.buckets().Open(ctx, file.url, bucket.OpenOptions{CredentialsFile: file.credentials, MustExist: true})
	})
	o := &r.o.Sync
	syncer := cloudsync.New(cloudsync.Options{
		Bucket: b, Keyring: ring, KeepKeys: r.keepRing, Key: file.key, Clock: r.clock, Logger: r.o.Logger, Limits: cloudsync.Limits(o.Limits),
		MinPoll: o.MinPoll, MaxPoll: o.MaxPoll, Paused: o.Paused || file.paused, Manual: o.Manual, Stall: stallOf(&r.o),
	})
	return &cloudLink{bucket: b, own: bucket.NewMeter(patient(b, r.clock, stallOf(&r.o))), ring: ring, syncer: syncer}, nil
}

// keepRing remembers a ring of the keyring that follows those which are remembered.
func (r *Repository) keepRing(ring []byte) error {
	return r.changeCloudFile(func(f *cloudFile) error {
		c, err := f.chain()
		if err != nil {
			return err
		}
		if c, err = c.Append(ring); err != nil {
			return err
		}
		f.keys = c.Rings()
		return nil
	})
}

// changeCloudFile replaces the file `cloud` by a changed copy.
func (r *Repository) changeCloudFile(change func(*cloudFile) error) error {
	r.cloud.writing.Lock()
	defer r.cloud.writing.Unlock()
	file, _ := r.cloud.get()
	if file == nil {
		return ErrNoCloud
	}
	next := *file
	if err := change(&next); err != nil {
		return err
	}
	if err := r.writeCloudFile(&next); err != nil {
		return err
	}
	r.cloud.set(func(c *cloud) { c.file = &next })
	return nil
}

// masterKey returns the key of a slot of the chain, or one for the slot of a new keyring when it is
// nil.
func (r *Repository) masterKey(file *cloudFile, chain *seal.Chain) (seal.MasterKey, error) {
	r.cloud.mu.Lock()
	pass := r.cloud.pass
	r.cloud.mu.Unlock()
	return masterKey(file, pass, chain)
}

func masterKey(file *cloudFile, pass secret.Bytes, chain *seal.Chain) (seal.MasterKey, error) {
	switch file.source {
	case keyInFile:
		return seal.ReadKeyFile(file.keyFile, file.shared, pass)
	case keyPassphrase:
		if pass.IsZero() {
			return seal.MasterKey{}, fmt.Errorf("the key of the cloud comes from a passphrase, and none is given: %w", ErrWrongKey)
		}
		if chain == nil {
			kdf, err := seal.NewKDF(nil)
			if err != nil {
				return seal.MasterKey{}, err
			}
			return kdf.Derive(pass)
		}
		m, err := chain.Derive(pass)
		return m, keyError(err)
	}
	return seal.MasterKey{}, nil
}

// keyError makes errors about keys match ErrWrongKey.
func keyError(err error) error {
	if errors.Is(err, seal.ErrPlaintext) {
		return fmt.Errorf("%w: a key is given: %w", ErrWrongKey, err)
	}
	return err
}

// disconnect ends the syncing of all pages and closes the link. The caller has the cloud's turn.
func (r *Repository) disconnect() error {
	_, link := r.cloud.get()
	if link == nil {
		return nil
	}
	errs := []error{link.syncer.Close()} // before the pages: it ends them all at once
	for _, s := range r.openStores() {
		errs = append(errs, s.detach())
	}
	r.remember(link)
	r.cloud.set(func(c *cloud) { c.link = nil })
	r.cloud.saver.Wait()
	return errors.Join(append(errs, link.bucket.Close())...)
}

// openStores returns the pages whose store is open, also those that are being opened.
func (r *Repository) openStores() []*pageStore {
	return r.pages.Stores(true) // opening waits for nothing that the caller may hold
}
