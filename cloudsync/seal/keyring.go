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

// NameDigits is the length of the names that Keyring.Name gives.
const NameDigits = 2 * nameBytes

// Keyring holds the keys of one bucket. It is immutable and may be used concurrently; it does not print its keys.
type Keyring struct {
	algorithm Algorithm
	bucket    ID
	names     secret.Bytes
	chunking  secret.Bytes
	data      []secret.Bytes
}

// NewKeyring makes the keys of a new bucket: its id, a key for names, a secret for chunking, and, unless algorithm is
// Plain, the first data key. random is the source; nil means the system's.
func NewKeyring(algorithm Algorithm, random io.Reader) (*Keyring, error) {
	n := 0
	switch algorithm {
	case Plain:
	case AES256GCM:
		n = 1
	default:
		return nil, fmt.Errorf("make keyring with %s: %w", algorithm, base.ErrInvalid)
	}
	b, err := draw(random, IDBytes+(2+n)*keyBytes)
	if err != nil {
		return nil, fmt.Errorf("draw keyring: %w", err)
	}
	defer clear(b)
	k := &Keyring{algorithm: algorithm, bucket: ID(b[:IDBytes])}
	k.setKeys(b[IDBytes:])
	return k, nil
}

// NewKeyringWith is NewKeyring with a chunking secret that is given: that of the repository which connects to the bucket
// first, so that the values which it has already are cut like those to come. The secret must have 32 bytes, else the
// error matches base.ErrInvalid; it is copied.
func NewKeyringWith(algorithm Algorithm, chunking []byte, random io.Reader) (*Keyring, error) {
	if len(chunking) != keyBytes {
		return nil, fmt.Errorf("make keyring with a chunking secret of %d bytes: %w", len(chunking), base.ErrInvalid)
	}
	k, err := NewKeyring(algorithm, random)
	if err != nil {
		return nil, err
	}
	k.chunking = secret.New(chunking)
	return k, nil
}

// setKeys takes the keys that stand one behind the other in b.
func (k *Keyring) setKeys(b []byte) {
	keys := make([]secret.Bytes, 0, len(b)/keyBytes)
	for key := range slices.Chunk(b, keyBytes) {
		keys = append(keys, secret.New(key))
	}
	k.names, k.chunking, k.data = keys[0], keys[1], keys[2:]
}

// Algorithm returns how the bucket's objects are protected; Plain means that everybody who sees the bucket reads it.
func (k *Keyring) Algorithm() Algorithm { return k.algorithm }

// BucketID returns the bucket's id.
func (k *Keyring) BucketID() ID { return k.bucket }

// ChunkingSecret returns the 32 bytes from which the table of the splitter is derived.
func (k *Keyring) ChunkingSecret() secret.Bytes { return k.chunking }

// DataKeys returns the number of data keys. New objects are sealed with the last one.
func (k *Keyring) DataKeys() int { return len(k.data) }

// WithNewDataKey returns a keyring that has one data key more, with which new objects are sealed, and opens all that
// the old one opens. Errors: base.ErrInvalid for a plaintext keyring, base.ErrTooLarge beyond MaxDataKeys.
func (k *Keyring) WithNewDataKey(random io.Reader) (*Keyring, error) {
	switch {
	case k.algorithm == Plain:
		return nil, fmt.Errorf("add data key to a plaintext keyring: %w", base.ErrInvalid)
	case len(k.data) >= MaxDataKeys:
		return nil, fmt.Errorf("add data key to %d: %w", len(k.data), base.ErrTooLarge)
	}
	b, err := draw(random, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("draw data key: %w", err)
	}
	defer clear(b)
	next := *k
	next.data = append(slices.Clip(k.data), secret.New(b))
	return &next, nil
}

func (k *Keyring) newest() uint32 {
	if len(k.data) == 0 {
		return 0
	}
	return uint32(len(k.data) - 1)
}

// Name returns the name, in the bucket, of what role and parts say: NameDigits lower-case hexadecimal digits, which tell
// nobody without the key what they stand for. Different roles, numbers of parts and parts give different names. In a
// plaintext bucket the key is there for all to see.
func (k *Keyring) Name(role string, parts ...[]byte) string {
	mac := hmac.New(sha256.New, k.names.Expose())
	b := appendParts([]byte(labelName), role)
	b = binary.BigEndian.AppendUint32(b, uint32(len(parts)))
	mac.Write(appendParts(b, parts...))
	return hex.EncodeToString(mac.Sum(nil)[:nameBytes])
}
