package seal

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
)

// Limits and sizes. They are part of the format.
const (
	// MaxObjectBytes is the greatest plaintext of a single object; what may be longer is a framed
	// object.
	MaxObjectBytes = 64 << 20
	// MaxTableBytes is the greatest length of the table that a caller gives to a framed object.
	MaxTableBytes = 4 << 20
	// MaxRoleBytes and MaxNameBytes bound the parts of a Label.
	MaxRoleBytes = 32
	MaxNameBytes = 1024
	// Overhead is by how much a single object is longer than its plaintext, without padding and
	// unless compression makes it shorter.
	Overhead = headerBytes + 2 + tagBytes
	// IDBytes is the length of an ID.
	IDBytes = 16
)

// ID is 16 random bytes that are drawn anew for each object, bucket and wrapped keyring, and are
// seen by everybody.
type ID [IDBytes]byte

// String returns the ID as 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Algorithm says how a bucket's objects are protected. The numbers are part of the format and
// append-only.
type Algorithm uint8

// The algorithms.
const (
	// Plain protects nothing from being read, and content only from accidents: the tag is a hash.
	Plain Algorithm = 0
	// AES256GCM is AES with a key of 256 bits in Galois/counter mode, a tag of 16 bytes, a key for
	// each object.
	AES256GCM Algorithm = 1
)

// String returns "plaintext" or "AES-256-GCM".
func (a Algorithm) String() string {
	switch a {
	case Plain:
		return "plaintext"
	case AES256GCM:
		return "AES-256-GCM"
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// Label says what an object is. It is bound to the object and not stored in it: who opens an object
// says what it has to be. It appears in errors, so it must not be secret.
type Label struct {
	// Role is the kind of the object, 1 to 32 bytes of [a-z0-9-].
	Role string
	// Name tells objects of one role apart; 0 to 1024 bytes of any value. Usually it is made of
	// names that Keyring.Name gives.
	Name string
}

func (l Label) check() error {
	if len(l.Role) < 1 || len(l.Role) > MaxRoleBytes {
		return fmt.Errorf("role of a sealed object has %d bytes, not 1 to %d: %w", len(l.Role), MaxRoleBytes, base.ErrInvalid)
	}
	for _, c := range []byte(l.Role) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("role of a sealed object is %q, not of [a-z0-9-]: %w", l.Role, base.ErrInvalid)
		}
	}
	if len(l.Name) > MaxNameBytes {
		return fmt.Errorf("name of a sealed object has %d bytes, limit %d: %w", len(l.Name), MaxNameBytes, base.ErrTooLarge)
	}
	return nil
}

// corrupt returns the error for bytes of the object l that are not what was sealed.
func (l Label) corrupt(want, got string, err error) error {
	return &base.CorruptError{Where: "sealed " + l.Role, Key: printable(l.Name), Want: want, Got: got, Err: err}
}

// printable returns a name for messages: as it is when it is plain, else quoted.
func printable(name string) string {
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return fmt.Sprintf("%q", name)
		}
	}
	return name
}

// Sealer seals and opens the objects of one bucket. It may be used concurrently.
type Sealer struct {
	ring   atomic.Pointer[Keyring]
	signer atomic.Pointer[ed25519.PrivateKey]

	mu     sync.Mutex
	random io.Reader // guarded by mu, for sources that are not safe for concurrent use
}

// NewSealer returns a Sealer with the keys of ring. random is the source of the ids of objects; nil
// means the system's. Two objects that get the same id, role and name would share a key and nonces.
// So that a source that repeats itself does no such harm, what is sealed goes into the id too.
func NewSealer(ring *Keyring, random io.Reader) *Sealer {
	if random == nil {
		random = rand.Reader
	}
	s := &Sealer{random: random}
	s.ring.Store(ring)
	return s
}

// Keyring returns the keys.
func (s *Sealer) Keyring() *Keyring { return s.ring.Load() }

// Use has objects sealed and opened with the keys of ring from now on. It must be a later ring of
// the same chain.
func (s *Sealer) Use(ring *Keyring) { s.ring.Store(ring) }

// Random returns a generator of numbers that nobody can guess, for choices that the bucket's owner
// must not foresee. It belongs to the caller.
func (s *Sealer) Random() (*mathrand.Rand, error) {
	var seed [32]byte
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.ReadFull(s.random, seed[:]); err != nil {
		return nil, fmt.Errorf("draw seed: %w", err)
	}
	return mathrand.New(mathrand.NewChaCha8(seed)), nil
}

// drawID returns what is drawn for the id of an object.
func (s *Sealer) drawID() (drawn ID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.ReadFull(s.random, drawn[:]); err != nil {
		return ID{}, fmt.Errorf("draw id of sealed object: %w", err)
	}
	return drawn, nil
}

// hedgedID returns the id of an object with some content, which tells nothing about that to who
// does not have the keyring.
func (k *Keyring) hedgedID(drawn ID, content ...[]byte) ID {
	mac := hmac.New(sha256.New, k.names.Expose())
	mac.Write(append([]byte(labelID), drawn[:]...))
	for _, c := range content {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(c))))
		mac.Write(c)
	}
	return ID(mac.Sum(nil)[:IDBytes])
}

// Form says how much of a plaintext the length of its single object shows.
type Form struct {
	// Parts are stretches of the plaintext, one behind the other, that are compressed each by
	// itself, if at all. What is behind the last one is not compressed. A length after compression
	// says how well that worked.
	Parts []Part
	// Pad returns the length to which an object of so many bytes is padded: at most a quarter more,
	// or leastQuarter. nil: as it is.
	Pad func(bytes int) int
}

// Part is a stretch of a plaintext.
type Part struct {
	To       int // where it ends
	Compress bool
}

// MaxSealed returns the greatest length of a single object whose plaintext has at most limit bytes.
func MaxSealed(limit int) int { return max(leastQuarter, limit+Overhead+(limit+Overhead)/4) }

// Seal returns plain as a single object of what l says, with its Ref. plain is at most
// MaxObjectBytes and is not retained. Sealing the same again gives other bytes. Errors:
// base.ErrInvalid, base.ErrTooLarge, those of the source of randomness.
func (s *Sealer) Seal(l Label, plain []byte, f Form) ([]byte, Ref, error) {
	if len(plain) > MaxObjectBytes {
		return nil, Ref{}, fmt.Errorf("seal %s of %d bytes, limit %d: %w", l.Role, len(plain), MaxObjectBytes, base.ErrTooLarge)
	}
	drawn, err := s.drawID()
	if err != nil {
		return nil, Ref{}, err
	}
	ring := s.ring.Load()
	o, err := ring.newObject(l, shapeSingle, ring.hedgedID(drawn, plain))
	if err != nil {
		return nil, Ref{}, err
	}
	out := make([]byte, 0, len(plain)+len(plain)>>14+2*Overhead) // with room for a compression that fails
	out = append(out, o.header()...)
	return o.sealSingle(out, plain, f), o.ref(), nil
}

// Open returns the plaintext of a single object that l says, and its Ref. The plaintext is at most
// limit bytes, and no more is allocated for it. sealed is neither changed nor retained.
//
// Errors: *base.CorruptError for bytes that are not what Seal gave for l with these keys, also for
// a plaintext object where the bucket is sealed and for a plaintext beyond limit; with
// ErrUnknownKey in it when the key index is beyond the keyring. base.ErrInvalid.
func (s *Sealer) Open(l Label, sealed []byte, limit int) ([]byte, Ref, error) {
	o, err := s.openObject(l, sealed, shapeSingle)
	if err != nil {
		return nil, Ref{}, err
	}
	plain, err := o.openSingle(sealed[headerBytes:], min(limit, MaxObjectBytes))
	return plain, o.ref(), err
}

// Ref is what stands in the header of an object and must be known to open a frame of it alone.
type Ref struct {
	// ID is the object's id.
	ID ID
	// KeyIndex says which data key of the keyring it has.
	KeyIndex uint32
}

// Inspect returns the Ref and algorithm that the first bytes of an object claim, without proof:
// only opening it with a label proves them. Errors: *base.CorruptError.
func Inspect(l Label, sealed []byte) (Ref, Algorithm, error) {
	h, err := parseHeader(l, sealed)
	return Ref{ID: h.id, KeyIndex: h.keyIndex}, h.algorithm, err
}
