package seal

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"

	"golang.org/x/crypto/argon2"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

// MasterKey is the secret of a slot, which opens a bucket's keyring. The zero value is no key; it
// makes and opens plaintext buckets. It may be copied; it does not print.
type MasterKey struct {
	key   secret.Bytes
	kdf   *KDF // nil if the key was not derived
	words bool // the key is written as recovery words
}

// NewMasterKey draws a master key from random; nil means the system's source.
func NewMasterKey(random io.Reader) MasterKey { return MasterKey{key: drawKey(random)} }

// Kind returns the kind of a slot with this key.
func (m MasterKey) Kind() SlotKind {
	switch {
	case m.words:
		return SlotWords
	case m.kdf != nil:
		return SlotPassphrase
	}
	return SlotKeyFile
}

// IsZero reports whether there is no key.
func (m MasterKey) IsZero() bool { return m.key.IsZero() }

// Equal reports whether both are the same key, in constant time.
func (m MasterKey) Equal(other MasterKey) bool { return m.key.Equal(other.key) }

// These are bounds of a KDF. Greater values in a bucket are refused before memory is allocated.
// Smaller ones are refused too, so that no program makes a bucket whose passphrase is easily
// guessed.
const (
	MinMemoryKiB = 8 << 10
	MaxMemoryKiB = 1 << 20
	MaxPasses    = 64
	MaxLanes     = 16
	// MaxMemoryPasses bounds the product of memory in KiB and passes, which is the time of
	// deriving.
	MaxMemoryPasses = 4 << 20
)

// The parameters of a new KDF: the second recommended option of RFC 9106, section 4, for scarce
// memory. The first one takes 2 GiB, which phones and small servers cannot spare.
const (
	DefaultMemoryKiB = 64 << 10
	DefaultPasses    = 3
	DefaultLanes     = 4
)

// KDF says how a master key is derived from a passphrase: by argon2id, version 1.3, with these
// parameters. It is not secret, and is stored in the slot.
type KDF struct {
	// MemoryKiB is the memory, in KiB: 8 MiB to 1 GiB.
	MemoryKiB uint32
	// Passes is the number of passes over the memory: 1 to 64, and at most 4 GiB in all.
	Passes uint32
	// Lanes is the degree of parallelism: 1 to 16. It changes the key.
	Lanes uint32
	// Salt is random for each slot.
	Salt ID
}

// NewKDF returns the recommended parameters with a salt from random; nil means the system's source.
func NewKDF(random io.Reader) KDF {
	return KDF{MemoryKiB: DefaultMemoryKiB, Passes: DefaultPasses, Lanes: DefaultLanes, Salt: ID(draw(random, IDBytes))}
}

// check describes a parameter that is out of bounds, or returns "".
func (k KDF) check() string {
	switch {
	case k.MemoryKiB < MinMemoryKiB || k.MemoryKiB > MaxMemoryKiB:
		return fmt.Sprintf("argon2id with %d KiB, not %d to %d", k.MemoryKiB, MinMemoryKiB, MaxMemoryKiB)
	case k.Passes < 1 || k.Passes > MaxPasses:
		return fmt.Sprintf("argon2id with %d passes, not 1 to %d", k.Passes, MaxPasses)
	case uint64(k.MemoryKiB)*uint64(k.Passes) > MaxMemoryPasses:
		return fmt.Sprintf("argon2id with %d KiB and %d passes, product above %d", k.MemoryKiB, k.Passes, MaxMemoryPasses)
	case k.Lanes < 1 || k.Lanes > MaxLanes:
		return fmt.Sprintf("argon2id with %d lanes, not 1 to %d", k.Lanes, MaxLanes)
	}
	return ""
}

// Derive returns the master key of a passphrase. It takes MemoryKiB of memory and, with the default
// parameters, about a tenth of a second. The bytes of the passphrase count as they are: no
// normalisation, no trimming. Errors: base.ErrInvalid for an empty passphrase or parameters out of
// bounds.
func (k KDF) Derive(passphrase secret.Bytes) (MasterKey, error) {
	if what := k.check(); what != "" {
		return MasterKey{}, fmt.Errorf("derive master key: %s: %w", what, base.ErrInvalid)
	}
	if passphrase.IsZero() {
		return MasterKey{}, fmt.Errorf("derive master key: passphrase is empty: %w", base.ErrInvalid)
	}
	b := argon2.IDKey(passphrase.Expose(), k.Salt[:], k.Passes, k.MemoryKiB, uint8(k.Lanes), keyBytes)
	defer clear(b)
	return MasterKey{key: secret.New(b), kdf: &k}, nil
}

const kdfBytes = 12 + IDBytes

// appendBytes appends the parameters: three numbers of four bytes, and the salt; zeros for nil.
func (k *KDF) appendBytes(b []byte) []byte {
	if k == nil {
		return append(b, make([]byte, kdfBytes)...)
	}
	for _, v := range []uint32{k.MemoryKiB, k.Passes, k.Lanes} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, k.Salt[:]...)
}

func parseKDF(b []byte) KDF {
	return KDF{
		MemoryKiB: binary.BigEndian.Uint32(b), Passes: binary.BigEndian.Uint32(b[4:]), Lanes: binary.BigEndian.Uint32(b[8:]), Salt: ID(b[12:kdfBytes]),
	}
}

// draw returns n bytes of random, or of the system's source for nil. It panics if a source fails,
// as crypto/rand does: nothing can be sealed without one.
func draw(random io.Reader, n int) []byte {
	if random == nil {
		random = rand.Reader
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(random, b); err != nil {
		panic(fmt.Sprintf("draw random bytes: %v", err))
	}
	return b
}

// drawKey draws a key.
func drawKey(random io.Reader) secret.Bytes {
	b := draw(random, keyBytes)
	defer clear(b)
	return secret.New(b)
}
