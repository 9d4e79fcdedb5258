package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

// MaxDataKeys is how many data keys a keyring may have.
const MaxDataKeys = 1024

// nameBytes is the length of a name before it is written as hexadecimal digits.
const nameBytes = 20

// NameDigits is the length of a name from Keyring.Name.
const NameDigits = 2 * nameBytes

// Keyring holds the keys of one bucket: those of one ring of its chain (see Chain), or of a bucket
// that has no ring yet. It is immutable and may be used concurrently; it does not print its keys.
type Keyring struct {
	algorithm Algorithm
	bucket    ID
	names     secret.Bytes
	chunking  secret.Bytes
	data      []secret.Bytes

	founded bool // it is a ring of a chain
	number  uint64
	hash    Hash
	slots   []slot
	self    *slotKeys // of the slot that has opened it; nil in plaintext
}

// NewKeyring makes the keys of a new bucket: its id, a key for names, a secret for chunking, and,
// unless algorithm is Plain, the first data key. Found makes the first ring of them. random is the
// source; nil means the system's.
func NewKeyring(algorithm Algorithm, random io.Reader) (*Keyring, error) {
	if algorithm > AES256GCM {
		return nil, fmt.Errorf("make keyring with %s: %w", algorithm, base.ErrInvalid)
	}
	b := draw(random, IDBytes+(2+int(algorithm))*keyBytes) // only sealed buckets have a data key
	defer clear(b)
	k := &Keyring{algorithm: algorithm, bucket: ID(b[:IDBytes])}
	k.setKeys(b[IDBytes:])
	return k, nil
}

// setKeys sets the keys to those that b has one after the other.
func (k *Keyring) setKeys(b []byte) {
	keys := make([]secret.Bytes, 0, len(b)/keyBytes)
	for key := range slices.Chunk(b, keyBytes) {
		keys = append(keys, secret.New(key))
	}
	k.names, k.chunking, k.data = keys[0], keys[1], keys[2:]
}

// Algorithm returns how the bucket's objects are protected. With Plain everybody who sees the
// bucket can read it.
func (k *Keyring) Algorithm() Algorithm { return k.algorithm }

// BucketID returns the bucket's id.
func (k *Keyring) BucketID() ID { return k.bucket }

// Number returns the number of the ring in the chain, 0 for the first one.
func (k *Keyring) Number() uint64 { return k.number }

// Hash returns the hash of the ring, which the next one names.
func (k *Keyring) Hash() Hash { return k.hash }

// ChunkingSecret returns the 32 bytes from which the table of the splitter is derived.
func (k *Keyring) ChunkingSecret() secret.Bytes { return k.chunking }

// DataKeys returns the number of data keys. New objects are sealed with the last one.
func (k *Keyring) DataKeys() int { return len(k.data) }

// Slots returns the slots that open the keyring, in the order in which they were added. The caller
// owns the slice.
func (k *Keyring) Slots() []SlotInfo {
	all := make([]SlotInfo, len(k.slots))
	for i := range k.slots {
		all[i] = k.slots[i].info()
		all[i].Own = k.self != nil && k.self.id == k.slots[i].id
	}
	return all
}

func (k *Keyring) newest() uint32 {
	if len(k.data) == 0 {
		return 0
	}
	return uint32(len(k.data) - 1)
}

// Name returns the name in the bucket for role and parts: NameDigits lower-case hexadecimal digits,
// which reveal nothing without the key. Different roles, numbers of parts and parts give different
// names. In a plaintext bucket the key is public.
func (k *Keyring) Name(role string, parts ...[]byte) string {
	mac := hmac.New(sha256.New, k.names.Expose())
	b := appendParts([]byte(labelName), role)
	b = binary.BigEndian.AppendUint32(b, uint32(len(parts)))
	mac.Write(appendParts(b, parts...))
	return hex.EncodeToString(mac.Sum(nil)[:nameBytes])
}
