package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
)

// Limits and sizes. They are part of the format.
const (
	// MaxObjectBytes is the greatest plaintext for Seal. Longer data is streamed by a Writer.
	MaxObjectBytes = 64 << 20
	// Overhead is by how many bytes an object in one part of up to 16 000 bytes exceeds its
	// plaintext, without padding and unless compression makes it shorter.
	Overhead = headerBytes + BlockOverhead + blockHead + tagBytes
	// IDBytes is the length of an ID.
	IDBytes = 16
)

// ID is 16 random bytes, drawn for each object, bucket and wrapped keyring. IDs are public.
type ID [IDBytes]byte

// String returns the ID as 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Algorithm says how a bucket's objects are protected. The numbers are part of the format and
// append-only.
type Algorithm uint8

// The algorithms.
const (
	// Plain does not hide content, and protects it only from accidents: the tag is a hash.
	Plain Algorithm = 0
	// AES256GCM is AES in Galois/counter mode, with a key of 256 bits for each object and a tag of
	// 16 bytes.
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

// Label identifies an object. It is bound to the object and not stored in it: the opener of an
// object states its label. It appears in errors, so it must not be secret.
type Label struct {
	// Role is the kind of the object.
	Role string
	// Name distinguishes objects of one role. Usually it consists of names from Keyring.Name.
	Name string
}

// corrupt returns the error for bytes of the object l that differ from what was sealed.
func (l Label) corrupt(want, got string, err error) error {
	return &base.CorruptError{Where: "sealed " + l.Role, Key: printable(l.Name), Want: want, Got: got, Err: err}
}

// printable returns a name for messages, quoted unless it is plain.
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
// means the system's. Two objects with the same id, role and name would share a key and nonces. So
// the content goes into the id too, in case the source repeats itself.
func NewSealer(ring *Keyring, random io.Reader) *Sealer {
	s := &Sealer{random: random}
	s.ring.Store(ring)
	return s
}

// Keyring returns the keys.
func (s *Sealer) Keyring() *Keyring { return s.ring.Load() }

// Use makes the Sealer seal and open with the keys of ring from now on. ring must be a later ring
// of the same chain.
func (s *Sealer) Use(ring *Keyring) { s.ring.Store(ring) }

// Random returns a generator of unpredictable numbers, for choices that the bucket's owner must not
// foresee. The caller owns it.
func (s *Sealer) Random() *mathrand.Rand {
	return mathrand.New(mathrand.NewChaCha8([32]byte(s.draw(32))))
}

// draw returns n random bytes.
func (s *Sealer) draw(n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return draw(s.random, n)
}

// hedgedID returns the id of an object with some content. It reveals nothing about the content
// without the keyring.
func (k *Keyring) hedgedID(drawn []byte, content ...[]byte) ID {
	mac := hmac.New(sha256.New, k.names.Expose())
	mac.Write(append([]byte(labelID), drawn...))
	for _, c := range content {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(c))))
		mac.Write(c)
	}
	return ID(mac.Sum(nil)[:IDBytes])
}

// Form determines how much the length of an object reveals about its plaintext.
type Form struct {
	// Parts are consecutive stretches of the plaintext, each compressed by itself, if at all. The
	// rest after the last one is not compressed. A length after compression shows how well the
	// content compresses.
	Parts []Part
	// Pad returns the padded length of an object of so many bytes: Quarters, perhaps of an object
	// together with bytes that precede it. nil: no padding.
	Pad func(bytes int) int
}

// Part is a stretch of a plaintext.
type Part struct {
	To       int // its end
	Compress bool
}

// MaxSealed returns the greatest length of an object whose plaintext has at most limit bytes, in
// parts of 100 bytes or more.
func MaxSealed(limit int) int {
	return max(leastQuarter, Quarters(Overhead+limit+limit/8))
}

// Seal returns plain as an object with the label l, and its Ref. plain has at most MaxObjectBytes
// and is not retained. Sealing the same plaintext again gives other bytes. Errors:
// base.ErrTooLarge.
func (s *Sealer) Seal(l Label, plain []byte, f Form) ([]byte, Ref, error) {
	if len(plain) > MaxObjectBytes {
		return nil, Ref{}, fmt.Errorf("seal %s of %d bytes, limit %d: %w", l.Role, len(plain), MaxObjectBytes, base.ErrTooLarge)
	}
	out := bytes.NewBuffer(make([]byte, 0, len(plain)+len(plain)/8+leastQuarter))
	w := s.NewWriter(out, l, false, plain)
	w.pad = func(stream int64) int64 {
		if f.Pad == nil {
			return stream
		}
		return StreamBytes(int64(f.Pad(int(ObjectBytes(stream)))))
	}
	from := 0
	for _, p := range append(slices.Clip(f.Parts), Part{To: len(plain)}) {
		w.compress = p.Compress
		_, _ = w.Write(plain[from:p.To]) // a bytes.Buffer does not fail
		w.endHeld()
		from = p.To
	}
	err := w.Close()
	return out.Bytes(), w.Ref(), err
}

// Open returns the plaintext of the object l, and its Ref. The plaintext has at most limit bytes,
// and little more is allocated for it. sealed is neither changed nor retained.
//
// Errors: *base.CorruptError for bytes that no Writer gave for l with these keys, also for a
// plaintext object in a sealed bucket and for a plaintext beyond limit; it wraps ErrUnknownKey if
// the key index is beyond the keyring.
func (s *Sealer) Open(l Label, sealed []byte, limit int) ([]byte, Ref, error) {
	if limit = min(limit, MaxObjectBytes); limit < 0 || len(sealed) > MaxSealed(limit) {
		return nil, Ref{}, l.corrupt(fmt.Sprintf("at most %d bytes", limit), fmt.Sprintf("%d sealed bytes", len(sealed)), nil)
	}
	st, err := s.NewStream(bytes.NewReader(sealed), int64(len(sealed)), l, nil)
	if err != nil {
		return nil, Ref{}, err
	}
	plain := make([]byte, 0, min(len(sealed), limit))
	for {
		b, err := st.Next()
		if err == nil && len(b) > limit-len(plain) {
			err = l.corrupt(fmt.Sprintf("at most %d bytes", limit), "more", nil)
		}
		switch err {
		case nil:
			plain = append(plain, b...)
		case io.EOF:
			return plain, st.Ref(), nil
		default:
			return nil, st.Ref(), err
		}
	}
}

// Ref is the part of an object's header that is needed to open a frame of the object alone.
type Ref struct {
	// ID is the object's id.
	ID ID
	// KeyIndex is the index of the object's data key in the keyring.
	KeyIndex uint32
}

// Inspect returns the Ref and algorithm that the first bytes of an object claim. Only opening the
// object with a label proves them. Errors: *base.CorruptError.
func Inspect(l Label, sealed []byte) (Ref, Algorithm, error) {
	h, err := parseHeader(l, sealed)
	return Ref{ID: h.id, KeyIndex: h.keyIndex}, h.algorithm, err
}
