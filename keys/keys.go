package keys

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/secret"
)

// Keyring describes the keyring of a cloud and its slots.
type Keyring struct {
	// BucketID is the random id of the bucket, 32 hexadecimal digits.
	BucketID string
	// Changes counts the changes of the keyring since it was made.
	Changes uint64
	// DataKeys is the number of data keys, of which the last seals new objects; 0 in a plaintext
	// cloud.
	DataKeys int
	// Slots open the keyring, in the order of their addition; none in a plaintext cloud.
	Slots []Slot
}

// Slot is a key file, a passphrase or recovery words that open a keyring.
type Slot struct {
	// ID is random, 32 hexadecimal digits.
	ID string
	// Kind is "key file", "passphrase" or "recovery words".
	Kind string
	// Label is the name given when the slot was added.
	Label string
	// Own reports that this device uses the slot.
	Own bool
}

func newKeyring(k *seal.Keyring) Keyring {
	info := Keyring{BucketID: k.BucketID().String(), Changes: k.Number(), DataKeys: k.DataKeys()}
	for _, s := range k.Slots() {
		info.Slots = append(info.Slots, Slot{ID: s.ID.String(), Kind: s.Kind.String(), Label: s.Label, Own: s.Own})
	}
	return info
}

// Read describes the present keyring in the bucket. Errors: ErrNoCloud, ErrWrongKey, ErrShutOut,
// ErrCloudRolledBack, ErrCloudReplaced, ErrCloudDamaged, ErrNetwork, ErrReadOnly, ErrClosed, those
// of ctx.
func Read(ctx context.Context, repo *ledger.Repository) (Keyring, error) {
	return withKeys(ctx, repo, "read the keyring", (*cloudsync.Syncer).CheckKeys)
}

// ChangeOptions describe a change of a cloud's keyring. The zero value changes nothing.
type ChangeOptions struct {
	// NewDataKey seals everything written from now on with a new key. Existing objects stay
	// readable, and are not uploaded again. Without implies it.
	NewDataKey bool
	// AddKeyFile is the path of a key file to add to the keyring; see CreateFile. KeyFilePassphrase
	// opens the file, if it has a passphrase.
	AddKeyFile        string
	KeyFilePassphrase []byte
	// AddPassphrase is a passphrase to add to the keyring.
	AddPassphrase []byte
	// AddWords are recovery words to add to the keyring; see NewRecoveryWords.
	AddWords string
	// Label is the name of the added slot, at most 128 bytes of printable UTF-8.
	Label string
	// Without lists slots to remove, each by its id, at least the first four digits of the id, or
	// its label. A device with no other slot cannot read what is written from now on. It can still
	// read older data that it has or that the bucket gives to it. The slot that this device uses
	// cannot be removed.
	Without []string
}

// Change changes the keyring of the cloud, with three requests. Other devices adopt it at their
// next check of the keyring: within six hours, and at most one hour before a write. Errors:
// ErrInvalid for an invalid change, such as a key that has a slot, and for a text of Without that
// matches several slots, ErrNotFound for one that matches none, ErrUnsupported in a plaintext
// cloud, those of Read and of reading a key file.
func Change(ctx context.Context, repo *ledger.Repository, c *ChangeOptions) (Keyring, error) {
	change, err := c.change()
	if err != nil {
		return Keyring{}, fmt.Errorf("change the keyring: %w", err)
	}
	return withKeys(ctx, repo, "change the keyring", func(s *cloudsync.Syncer, ctx context.Context) error {
		if s.Keyring().Algorithm() == seal.Plain {
			return fmt.Errorf("the cloud is plaintext and has no keys: %w", ledger.ErrUnsupported)
		}
		return s.ChangeKeys(ctx, func(k *seal.Keyring) (seal.Change, error) {
			var err error
			change.RemoveSlots, err = findSlots(c.Without, k)
			return change, err
		})
	})
}

// findSlots returns the slots of a keyring whose ids begin with the texts, or whose labels equal
// them.
func findSlots(texts []string, k *seal.Keyring) (ids []seal.ID, err error) {
	for _, text := range texts {
		var found []seal.ID
		for _, s := range k.Slots() {
			if len(text) >= 4 && strings.HasPrefix(s.ID.String(), strings.ToLower(text)) || text != "" && s.Label == text {
				found = append(found, s.ID)
			}
		}
		switch len(found) {
		case 1:
			ids = append(ids, found[0])
		case 0:
			return nil, fmt.Errorf("there is no slot %q: %w", text, ledger.ErrNotFound)
		default:
			return nil, fmt.Errorf("slot %q is %d: name it by its id: %w", text, len(found), ledger.ErrInvalid)
		}
	}
	return ids, nil
}

// withKeys calls fn to check or change the bucket's keyring, and returns its then recorded state.
func withKeys(ctx context.Context, repo *ledger.Repository, what string, fn func(*cloudsync.Syncer, context.Context) error) (info Keyring, err error) {
	r := bridge.Of(repo)
	err = r.Call(ctx, what, func(ctx context.Context) error {
		conn, err := r.Cloud.Connect(ctx)
		if err == nil {
			err = r.Cloud.OfBucket(fn(conn.Syncer, ctx))
		}
		if err == nil {
			info = newKeyring(conn.Syncer.Keyring())
		}
		return err
	})
	return info, err
}

// change reads the keys to add.
func (c *ChangeOptions) change() (seal.Change, error) {
	out := seal.Change{NewDataKey: c.NewDataKey}
	if c.AddKeyFile != "" {
		m, err := seal.ReadKeyFile(c.AddKeyFile, false, secret.New(c.KeyFilePassphrase))
		if err != nil {
			return out, err
		}
		out.AddSlots = append(out.AddSlots, seal.NewSlot{Master: m, Label: c.Label})
	}
	if len(c.AddPassphrase) > 0 {
		m, err := seal.NewKDF(nil).Derive(secret.New(c.AddPassphrase))
		if err != nil {
			return out, err
		}
		out.AddSlots = append(out.AddSlots, seal.NewSlot{Master: m, Label: c.Label})
	}
	if c.AddWords != "" {
		m, err := seal.ParseRecoveryWords([]byte(c.AddWords))
		if err != nil {
			return out, err
		}
		out.AddSlots = append(out.AddSlots, seal.NewSlot{Master: m, Label: c.Label})
	}
	return out, nil
}

// CreateFile makes a new master key and writes it to a new file that only its owner can read. The
// file is durable when it returns nil, and never overwrites another (fs.ErrExist). The file gives
// access to the cloud; without any copy of the key the cloud is unreadable. A passphrase seals the
// key in the file; it must then be set as Cloud.KeyFilePassphrase or SyncOptions.Passphrase. nil
// seals nothing. Errors: fs.ErrExist, those of the file system.
func CreateFile(path string, passphrase []byte) error {
	return seal.CreateKeyFile(path, seal.NewMasterKey(nil), secret.New(passphrase))
}

// FileID returns 16 hexadecimal digits that identify the key in a key file and reveal nothing else.
// passphrase opens the file, nil for none. Errors: ErrCorrupt, ErrUnsupported,
// ErrKeyFilePassphrase, ErrWrongKey, those of the file system.
func FileID(path string, shared bool, passphrase []byte) (string, error) {
	m, err := seal.ReadKeyFile(path, shared, secret.New(passphrase))
	if err != nil {
		return "", err
	}
	return keyID(m)
}

// NewRecoveryWords returns 24 English words for a new key, with a checksum, by BIP-39. Once added
// to the keyring, they give access to the cloud. The user should write them down, and not keep them
// on a device.
func NewRecoveryWords() (string, error) {
	words, err := seal.NewRecoveryWords(nil).RecoveryWords()
	return string(words.Expose()), err
}

// Recover opens the keyring of the bucket at c.URL with recovery words. It makes the new key file
// c.KeyFile, protected by c.KeyFilePassphrase unless that is empty, and adds it to the keyring with
// the given label; Clone and SetCloud can then use it. Of c it also uses CredentialsFile and
// BucketID, and nothing else. o may be nil. Errors: ErrInvalid for invalid words, ErrWrongKey for
// those of another bucket, ErrShutOut, ErrNotFound, fs.ErrExist for an existing file, ErrNetwork,
// those of ctx.
func Recover(ctx context.Context, c *ledger.Cloud, words, label string, o *ledger.Options) (Keyring, error) {
	named := cloudlink.Cloud(*c)
	var buckets map[string]bucket.Opener
	if o != nil {
		buckets = o.Buckets
	}
	ring, err := cloudlink.Recover(ctx, &named, cloudlink.Openers(buckets), words, label)
	if err != nil {
		return Keyring{}, fmt.Errorf("recover: %w", err)
	}
	return newKeyring(ring), nil
}

// NeedsPassphrase reports whether a key file has a passphrase; false for an unreadable file.
func NeedsPassphrase(keyFile string) bool {
	_, err := seal.ReadKeyFile(keyFile, true, secret.Bytes{})
	return errors.Is(err, ledger.ErrKeyFilePassphrase)
}

// keyID returns digits that identify a key.
func keyID(m seal.MasterKey) (string, error) {
	text, err := seal.FormatKeyFile(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte("ledger key id\x00"), text.Expose()...))
	return hex.EncodeToString(sum[:8]), nil
}
