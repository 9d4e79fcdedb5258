package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// formatVersion is that of keyrings and key files, objectVersion that of sealed objects.
	formatVersion = 1
	objectVersion = 3
	headerBytes   = 24
	nonceBytes    = 12
	tagBytes      = 16
	keyBytes      = 32
)

// The kinds of sealed contents: the first byte of the nonce. They are append-only. 3 and 4 were
// used in former versions.
const (
	kindFrame   = 1 // a frame that others follow
	kindLast    = 2 // the last frame
	kindRing    = 5 // the content of a ring
	kindSlot    = 6 // the key of a ring, wrapped for a slot
	kindKeyFile = 7 // the key in a key file under a passphrase
)

// These labels separate the derivations from one key. Each has the version of its format.
const (
	labelObject = "ledger seal 3 object"
	labelPlain  = "ledger seal 1 plain"
	labelName   = "ledger seal 1 name"
	labelID     = "ledger seal 1 id"
	labelDraw   = "ledger seal 1 draw"
	labelRing   = "ledger seal 1 ring"
	labelSlot   = "ledger seal 1 slot"
	labelDevice = "ledger seal 1 device"
	labelSign   = "ledger seal 1 sign"
	labelBox    = "ledger seal 1 box"
	labelWrap   = "ledger seal 1 wrap"
	labelCheck  = "ledger seal 1 check"
	labelFile   = "ledger seal 1 key file"
)

// header is the head of an object; docs/format/sealed.md has the layout.
type header struct {
	algorithm Algorithm
	keyIndex  uint32
	id        ID
}

func (h header) bytes() []byte {
	b := []byte{objectVersion, byte(h.algorithm), 0, 0}
	b = binary.BigEndian.AppendUint32(b, h.keyIndex)
	return append(b, h.id[:]...)
}

func parseHeader(l Label, b []byte) (h header, err error) {
	if len(b) < headerBytes {
		return h, l.corrupt(fmt.Sprintf("a header of %d bytes", headerBytes), fmt.Sprint(len(b)), nil)
	}
	if b[0] != objectVersion { // not "newer", as rings say: any party that writes into the bucket could cause that message
		return h, l.corrupt(fmt.Sprintf("format version %d", objectVersion), fmt.Sprint(b[0]), nil)
	}
	h = header{algorithm: Algorithm(b[1]), keyIndex: binary.BigEndian.Uint32(b[4:]), id: ID(b[8:headerBytes])}
	if h.algorithm > AES256GCM || b[2] != 0 || b[3] != 0 {
		return h, l.corrupt("a known algorithm", fmt.Sprintf("%s, %d %d", h.algorithm, b[2], b[3]), nil)
	}
	if h.algorithm == Plain && h.keyIndex != 0 {
		return h, l.corrupt("key index 0 in plaintext", fmt.Sprint(h.keyIndex), nil)
	}
	return h, nil
}

// object is the common state of the records of one object. It is immutable and may be used
// concurrently.
type object struct {
	label Label
	id    ID
	index uint32
	aead  cipher.AEAD
	ad    []byte // header, role, name: bound to every record
}

// newObject derives the key of a new object. The newest data key is always there.
func (k *Keyring) newObject(l Label, id ID) *object {
	return must(k.object(l, header{algorithm: k.algorithm, keyIndex: k.newest(), id: id}))
}

// object derives the key of an object.
//
// I1: an object of another algorithm than the bucket's is never opened, so that no plaintext passes
// for sealed. I2: an object's key follows from all of its header, role and name, and the same goes
// into the associated data.
func (k *Keyring) object(l Label, h header) (*object, error) {
	if h.algorithm != k.algorithm {
		return nil, l.corrupt(k.algorithm.String(), h.algorithm.String(), nil)
	}
	o := &object{label: l, id: h.id, index: h.keyIndex, ad: appendParts(h.bytes(), l.Role, l.Name)}
	if k.algorithm == Plain {
		o.aead = plainAEAD{}
		return o, nil
	}
	if uint64(h.keyIndex) >= uint64(len(k.data)) {
		return nil, l.corrupt(fmt.Sprintf("a key index below %d", len(k.data)), fmt.Sprint(h.keyIndex), ErrUnknownKey)
	}
	info := appendParts(append([]byte(labelObject), h.bytes()[:8]...), l.Role, l.Name)
	o.aead = deriveAEAD(k.data[h.keyIndex].Expose(), h.id[:], info)
	return o, nil
}

func (o *object) header() []byte { return o.ad[:headerBytes] }

func (o *object) ref() Ref { return Ref{ID: o.id, KeyIndex: o.index} }

func nonce(kind byte, number uint64) []byte {
	var n [nonceBytes]byte
	n[0] = kind
	binary.BigEndian.PutUint64(n[4:], number)
	return n[:]
}

// appendParts appends each part after its length in four bytes, so that different lists give
// different bytes.
func appendParts[T string | []byte](b []byte, parts ...T) []byte {
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

// derive returns n bytes that HKDF-SHA-256 makes of key, salt and info.
func derive(key, salt, info []byte, n int) []byte {
	return must(hkdf.Key(sha256.New, key, salt, string(info), n))
}

func deriveAEAD(key, salt, info []byte) cipher.AEAD {
	sub := derive(key, salt, info, keyBytes)
	defer clear(sub)
	return must(cipher.NewGCM(must(aes.NewCipher(sub))))
}

// must returns the result of a function that fails only for bad lengths or options, which are
// constants here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// plainAEAD takes the place of a cipher in a bucket without a key: the content stays as it is, and
// the tag is a hash that everybody can make.
type plainAEAD struct{}

var errTag = errors.New("tag differs")

// NonceSize implements cipher.AEAD.
func (plainAEAD) NonceSize() int { return nonceBytes }

// Overhead implements cipher.AEAD.
func (plainAEAD) Overhead() int { return tagBytes }

// Seal implements cipher.AEAD.
func (plainAEAD) Seal(dst, nonce, content, ad []byte) []byte {
	tag := plainTag(nonce, content, ad)
	return append(append(dst, content...), tag...)
}

// Open implements cipher.AEAD.
func (plainAEAD) Open(dst, nonce, sealed, ad []byte) ([]byte, error) {
	if len(sealed) < tagBytes {
		return nil, errTag
	}
	content, tag := sealed[:len(sealed)-tagBytes], sealed[len(sealed)-tagBytes:]
	if subtle.ConstantTimeCompare(tag, plainTag(nonce, content, ad)) != 1 {
		return nil, errTag
	}
	return append(dst, content...), nil
}

func plainTag(nonce, content, ad []byte) []byte {
	h := sha256.New()
	h.Write(bytes.Join([][]byte{[]byte(labelPlain), nonce, binary.BigEndian.AppendUint32(nil, uint32(len(ad))), ad}, nil))
	h.Write(content)
	return h.Sum(nil)[:tagBytes]
}
