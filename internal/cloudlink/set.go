package cloudlink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/secret"
)

// Set makes the repository a device of the bucket of c. The caller holds the cloud's turn. Errors:
// those of ledger.Repository.SetCloud.
func (l *Link) Set(ctx context.Context, c *Cloud) error {
	f, err := c.file()
	if err != nil {
		return err
	}
	return l.setFile(ctx, f, c.pass())
}

// Unset forgets the cloud. The caller holds the cloud's turn.
func (l *Link) Unset(context.Context) error {
	if err := l.disconnect(); err != nil {
		return err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.writeFile(nil); err != nil {
		return err
	}
	l.set(func(l *Link) { l.file, l.wanted, l.err, l.record = nil, nil, nil, &syncRecord{} })
	return nil
}

// SetPaused stops or resumes background sync. The caller holds the cloud's turn. Errors:
// base.ErrNoCloud, those of the file system.
func (l *Link) SetPaused(paused bool) error {
	f, conn := l.get()
	if f == nil {
		return base.ErrNoCloud
	}
	if f.paused != paused {
		err := l.changeFile(func(f *file) error {
			f.paused = paused
			return nil
		})
		if err != nil {
			return err
		}
	}
	switch {
	case conn == nil:
	case paused:
		conn.Syncer.Pause()
	default:
		conn.Syncer.Resume()
	}
	return nil
}

func (l *Link) setFile(ctx context.Context, f *file, pass secret.Bytes) error {
	if err := l.checkPlace(f.url); err != nil {
		return err
	}
	old, _ := l.get()
	moves := old == nil || old.url != f.url // otherwise an empty bucket may be a disk that is not mounted
	ring, err := l.join(ctx, f, pass, moves)
	if !moves && errors.Is(err, base.ErrNotFound) {
		err = l.OfBucket(cloudsync.ErrBucketWiped)
	}
	if err != nil {
		return err
	}
	if err := l.leaveOthers(ctx, ring.BucketID()); err != nil {
		return err
	}
	return l.adopt(ctx, f, pass, ring, false)
}

// checkPlace refuses a bucket in the directory of the repository.
func (l *Link) checkPlace(url string) error {
	path, ok := strings.CutPrefix(url, "dir:")
	if !ok || l.o.Dir == "" {
		return nil
	}
	own, err := filepath.Abs(l.o.Dir)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(own, path); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("the bucket %s would be in the directory of the repository: %w", url, base.ErrInvalid)
	}
	return nil
}

// adopt makes f the cloud of the repository. anyhow: see attach. The caller holds the cloud's turn.
func (l *Link) adopt(ctx context.Context, f *file, pass secret.Bytes, ring *seal.Keyring, anyhow bool) error {
	if err := l.takeFile(f, pass, ring); err != nil {
		return err
	}
	return l.attachAll(ctx, anyhow)
}

// takeFile is adopt without the pages.
func (l *Link) takeFile(f *file, pass secret.Bytes, ring *seal.Keyring) error {
	if err := l.disconnect(); err != nil {
		return err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	old, _ := l.get()
	f.key = seal.NewDeviceKey(nil) // one key per bucket: two buckets cannot tell that they share a device
	if old != nil {
		f.paused, f.rules = old.paused, old.rules
		if there, err := old.ring(); err == nil && there.BucketID == ring.BucketID() {
			f.key = old.key
		}
	}
	f.tie, f.pin = layout.Tie(l.o.Dir), ""
	if err := l.o.TakeSecret(ring.ChunkingSecret()); err != nil {
		return err
	}
	if err := l.writeFile(f); err != nil {
		return err
	}
	rec := l.readRecord(ring.BucketID().String())
	l.set(func(l *Link) { l.file, l.wanted, l.pass, l.record, l.err = f, nil, pass, rec, nil })
	return nil
}

// maxRules is the greatest number of stored rules, and maxPrefix the greatest length of a prefix.
const (
	maxRules  = 1 << 16
	maxPrefix = math.MaxUint16
)

// Rules returns the stored upload rules.
func (l *Link) Rules() []Rule {
	f, _ := l.get()
	if f == nil {
		return nil
	}
	return f.rules
}

// SetRules stores upload rules, which it then owns. They apply to open pages at once. The caller
// holds the cloud's turn. Errors: base.ErrNoCloud, base.ErrInvalid, base.ErrTooLarge, those of the
// file system and of ctx.
func (l *Link) SetRules(ctx context.Context, all []Rule) error {
	for _, u := range all {
		if len(u.Prefix) > maxPrefix || len(all) > maxRules {
			return fmt.Errorf("a prefix of %d bytes, one of %d: %w", len(u.Prefix), len(all), base.ErrTooLarge)
		}
		if !u.CompressionOff && !u.DedupOff {
			return fmt.Errorf("a rule for prefix %q switches nothing off: %w", u.Prefix, base.ErrInvalid)
		}
	}
	err := l.changeFile(func(f *file) error {
		f.rules = all
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range l.o.Open() {
		if err := s.end(false); err != nil {
			return err
		}
	}
	return l.attachAll(ctx, false)
}

// keysUnder returns a function that reports whether a rule with the switch applies to a key; nil if
// no rule does.
func (l *Link) keysUnder(k base.Page, has func(Rule) bool) func(key []byte) bool {
	var prefixes [][]byte
	rules := l.Rules()
	if l.o.Rules != nil {
		rules = append(l.o.Rules(k), rules...)
	}
	for _, r := range rules {
		if r.Page == k && has(r) {
			prefixes = append(prefixes, bytes.Clone(r.Prefix))
		}
	}
	if len(prefixes) == 0 {
		return nil
	}
	return func(key []byte) bool {
		return slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.HasPrefix(key, p) })
	}
}

// Rule is an upload rule for keys of a page; see ledger.UploadRule.
type Rule struct {
	Page                     base.Page
	Prefix                   []byte
	CompressionOff, DedupOff bool
}

// Info describes the cloud, as ledger.CloudInfo does. A Keeper sets ListErr.
type Info struct {
	URL             string
	BucketID        string
	Algorithm       string
	Plaintext       bool
	KeyFile         string
	Passphrase      bool
	CredentialsFile string
	Device          string
	Paused, Founded bool
	ListErr, Err    error
}

// Info describes the cloud of the repository, also one that the repository has yet to join; ok is
// false when there is none. It makes no request.
func (l *Link) Info() (info Info, ok bool) {
	l.mu.Lock()
	f, wanted, err := l.file, l.wanted, l.err
	l.mu.Unlock()
	switch {
	case f == nil && wanted != nil:
		f = wanted
	case f == nil:
		return Info{Err: err}, err != nil
	}
	info = Info{
		URL: f.url, KeyFile: f.keyFile, Passphrase: f.source == keyPassphrase, Plaintext: f.source == keyNone,
		CredentialsFile: f.credentials, Paused: f.paused, Founded: f.founded, Err: err,
	}
	if f != wanted { // a wanted file has no device key before joining
		info.Device = f.key.ID().String()
		if w, err := f.ring(); err != nil {
			info.Err = cmp.Or(info.Err, err)
		} else {
			info.BucketID, info.Algorithm = w.BucketID.String(), w.Algorithm.String()
		}
	}
	return info, true
}

// text returns the name of a page for users.
func (l *Link) text(k base.Page) string {
	name, _ := l.o.Name(k) // without it the id does
	return k.Text(name)
}
