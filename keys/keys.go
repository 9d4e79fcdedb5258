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

// Keyring describes the keyring of a cloud: what opens it.
type Keyring struct {
	// BucketID is the random id of the bucket, 32 hexadecimal digits.
	BucketID string
	// Changes is how often the keyring was changed since it was made.
	Changes uint64
	// DataKeys is how many data keys there are, the last of which seals what is written now; 0 in a
	// plaintext cloud.
	DataKeys int
	// Slots are what opens it, in the order in which they were added; none in a plaintext cloud.
	Slots []Slot
}

// Slot is a key file, a passphrase or recovery words that open a keyring.
type Slot struct {
	// ID is random, 32 hexadecimal digits.
	ID string
	// Kind is "key file", "passphrase" or "recovery words".
	Kind string
	// Label is what its maker called it.
	Label string
	// Own says that this device uses it.
	Own bool
}

func newKeyring(k *seal.Keyring) Keyring {
	info := Keyring{BucketID: k.BucketID().String(), Changes: k.Number(), DataKeys: k.DataKeys()}
	for _, s := range k.Slots() {
		info.Slots = append(info.Slots, Slot{ID: s.ID.String(), Kind: s.Kind.String(), Label: s.Label, Own: s.Own})
	}
	return info
}

// Read describes the keyring of the cloud, as it is in the bucket now. Errors: ErrNoCloud,
// ErrWrongKey, ErrShutOut, ErrCloudRolledBack, ErrCloudReplaced, ErrCloudDamaged, ErrNetwork,
// ErrReadOnly, ErrClosed, those of ctx.
func Read(ctx context.Context, repo *ledger.Repository) (Keyring, error) {
	return withKeys(ctx, repo, "read the keyring", (*cloudsync.Syncer).CheckKeys)
}

// ChangeOptions say how the keyring of a cloud is to change. The zero value changes nothing.
type ChangeOptions struct {
	// NewDataKey has all that is written from now on sealed with a new key. What is there stays
	// readable, and is not uploaded again. It comes by itself with Without.
	NewDataKey bool
	// AddKeyFile is the path of a key file that is to open the keyring too; see CreateFile.
	// KeyFilePassphrase is that of the file, if it is under one.
	AddKeyFile        string
	KeyFilePassphrase []byte
	// AddPassphrase is to open the keyring too.
	AddPassphrase []byte
	// AddWords are recovery words that are to open the keyring too; see NewRecoveryWords.
	AddWords string
	// Label is the name of what is added, at most 128 bytes of printable UTF-8.
	Label string
	// Without are slots that no longer open the keyring, each by its id, at least the first four
	// digits of that, or its label: whoever has nothing else does not read what is written from now
	// on. He still reads what was written before, if he has it or the bucket gives it to him. The
	// slot that is used here cannot be removed here.
	Without []string
}

// Change changes the keyring of the cloud, with three requests. Other devices take it over when
// they look next: within six hours, and an hour before they write. Errors: ErrInvalid for what is
// wrong in the change, and for a text of Without that means several slots, ErrNotFound for one that
// means none, ErrUnsupported in a plaintext cloud, those of Read and of reading a key file.
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

// findSlots returns the slots of a keyring whose ids begin with the texts, or that are called so.
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

// withKeys has fn look at the keyring in the bucket, or change it, and returns what is known then.
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

// change reads what is to be added.
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
		kdf, err := seal.NewKDF(nil)
		if err != nil {
			return out, err
		}
		m, err := kdf.Derive(secret.New(c.AddPassphrase))
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

// CreateFile makes a new master key and writes it to a new file that only its owner can read,
// durable when it returns nil. A file that is there is never overwritten (fs.ErrExist). Whoever has
// the file can read the cloud; without it nobody can. With a passphrase the key is sealed with
// that, which Cloud.KeyFilePassphrase and SyncOptions.Passphrase are to have; nil seals nothing.
// Errors: fs.ErrExist, those of the file system.
func CreateFile(path string, passphrase []byte) error {
	m, err := seal.NewMasterKey(nil)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	return seal.CreateKeyFile(path, m, secret.New(passphrase))
}

// FileID returns 16 hexadecimal digits that tell the key in a key file from others and nothing
// else about it. passphrase is that of the file, nil for none. Errors: ErrCorrupt, ErrUnsupported,
// ErrKeyFilePassphrase, ErrWrongKey, those of the file system.
func FileID(path string, shared bool, passphrase []byte) (string, error) {
	m, err := seal.ReadKeyFile(path, shared, secret.New(passphrase))
	if err != nil {
		return "", err
	}
	return keyID(m)
}

// NewRecoveryWords returns 24 English words that stand for a new key, with a checksum, by BIP-39.
// They open a cloud once they are added to its keyring; whoever has them can read it. They are to
// be written down, and not kept on a device.
func NewRecoveryWords() (string, error) {
	m, err := seal.NewRecoveryWords(nil)
	if err != nil {
		return "", fmt.Errorf("make recovery words: %w", err)
	}
	words, err := m.RecoveryWords()
	return string(words.Expose()), err
}

// Recover opens the keyring of the bucket at c.URL with recovery words, makes the new key file
// c.KeyFile, under c.KeyFilePassphrase unless that is empty, and adds it to the keyring with the
// given label: then Clone and SetCloud take it. Nothing else of c is used but CredentialsFile and
// BucketID. o may be nil. Errors: ErrInvalid for words that are none, ErrWrongKey for those of
// another bucket, ErrShutOut, ErrNotFound, fs.ErrExist for a file that is there, ErrNetwork, those
// of ctx.
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

// NeedsPassphrase reports whether a key file is under a passphrase. What cannot be read is not.
func NeedsPassphrase(keyFile string) bool {
	_, err := seal.ReadKeyFile(keyFile, true, secret.Bytes{})
	return errors.Is(err, ledger.ErrKeyFilePassphrase)
}

// keyID returns digits that tell a key from others.
func keyID(m seal.MasterKey) (string, error) {
	text, err := seal.FormatKeyFile(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte("ledger key id\x00"), text.Expose()...))
	return hex.EncodeToString(sum[:8]), nil
}
