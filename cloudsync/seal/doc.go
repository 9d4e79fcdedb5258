// Package seal is the layer between plaintext and what a bucket's owner sees. It handles keys,
// objects and frames; buckets, pages and logs are outside it. The caller identifies an object by a
// role and a name.
//
// A bucket's keyring holds the bucket's id, a key for names, a secret for chunking, data keys, and
// the public keys of its slots. It is a chain of rings. Each ring is an object of its own: it names
// the hash of the ring before, is sealed with a key of its own, and has that key wrapped for every
// slot. A slot is opened with a master key: 32 bytes from a key file, from a passphrase, or written
// as recovery words. A Sealer seals with the newest data key and opens with all of them. Each
// object has a random id, from which its own key is derived. It is a stream cut into frames of 16
// KiB, which is opened by range or from front to end.
//
// In a bucket without a master key everything has the same layout with algorithm 0: content is
// readable, and a hash takes the place of the tag, against accidents. A Sealer opens only objects
// of its bucket's algorithm.
//
// # What the bucket's owner sees
//
// The owner of a sealed bucket sees:
//
//   - of objects their number, names, lengths, and when and from where each was written, read and
//     deleted;
//   - of a header the format version, the algorithm, the index of the data key, and a random id;
//   - of the keyring the bucket's id, when it changed, how many slots it has and of which kind, the
//     parameters of argon2id, sixteen bytes of each slot by which a guessed passphrase can be tried
//     (the rest allows that too), and by its length about how many data keys there are.
//
// Lengths are padded: by Padme, or as the caller of Seal says.
// They are lengths after compression, where the caller allows it. A party that can place text of
// its own beside a secret in one block can learn of the secret from the lengths.
//
// The owner does not see content, names of ledgers and pages, offsets within an object, or whether
// two objects or blocks have equal content: equal plaintexts give different bytes each time. Equal
// names stand for the same thing, and paths may show roles, as the maker of the paths decides.
//
// The owner can withhold objects, and replace an object by an older one with the same role and
// name. The owner cannot change an object, cut it, mix frames, pass it off under another role or
// name, or replace it by plaintext: opening gives an error.
//
// The owner of a plaintext bucket sees, and can change, everything.
//
// # Layouts
//
// docs/format/sealed.md has the layouts of objects. Numbers are big-endian. part(x) is the length
// of x in four bytes, then x. Bytes that are not listed are zero and reserved; other values are
// refused.
//
// A ring:
//
//	 0   1  format version: 3
//	 1   1  algorithm
//	 2   2  number of slots: 1 to 64, in plaintext 0
//	 4  16  bucket id, random
//	20   8  number of the ring, from 0
//	28  32  SHA-256 of the ring before; 0 for ring 0
//	60  32  X25519 public key, drawn for this ring; 0 in plaintext
//	92      slots
//	     4  length of the content
//	        content, sealed: kind 5, number 0, associated data all before, length included;
//	        key HKDF-SHA-256, input the ring's key, salt the bucket id, info "ledger seal 1 wrap"
//	    16  tag
//	    16  id of the slot that signs; 0 in plaintext
//	    64  Ed25519 signature by it of "ledger seal 1 ring" and all before; 0 in plaintext
//	    32  SHA-256 of everything before
//
// A slot, of which the first 64 bytes stay the same from ring to ring:
//
//	 0   1  kind: 1 key file, 2 passphrase by argon2id, version 1.3, 3 recovery words
//	 1   3  0
//	 4  16  id, random
//	20   4  argon2id: memory in KiB; all four are 0 without a passphrase
//	24   4  passes
//	28   4  lanes
//	32  16  salt
//	48  16  key check, derived as below, info "ledger seal 1 check"
//	64  48  the ring's key, 32 random bytes, sealed: kind 6, number 0, associated data the 64
//	        bytes before; key HKDF-SHA-256, input X25519 of the ring's and the slot's key, salt
//	        bucket id and slot id, info "ledger seal 1 slot", number of the ring (8), the ring's
//	        and the slot's public key
//
// HKDF-SHA-256 with the salt bucket id, slot id derives from a slot's master key its check, with
// info "ledger seal 1 box" the private key of X25519, and with "ledger seal 1 sign" the seed of
// Ed25519. Public keys are only in the sealed content.
//
// The content is not compressed and has no flags; text(x) is its length in two bytes, then x,
// printable UTF-8 of at most 128:
//
//	32  key for names
//	32  chunking secret
//	 4  number of data keys: 1 to 1024, in plaintext 0; and each, 32
//	    for each slot: Ed25519 public key (32), X25519 public key (32), text(label)
//
// The next ring has the same bucket id, algorithm, keys and slots, except that slots may be removed
// or added, and data keys added. It counts if a slot of the ring before has signed it; ring 0 is
// signed by a slot of its own.
//
// A device signs with its own Ed25519 key, which is not in the keyring. Its signature of "ledger
// seal 1 device", the bucket's id and a message follows its public key (32). The device's id is the
// beginning of the SHA-256 of "ledger seal 1 device" and that key.
//
// Recovery words are the 24 English words of BIP-39 for a master key of 32 bytes.
//
// A name is the first 20 bytes, as 40 lower-case hexadecimal digits, of the HMAC-SHA-256, with the
// key for names, of "ledger seal 1 name", part(role), the number of parts (4), and each part as
// part(x).
//
// A key file has three lines that end in a line feed: "ledger master key 1"; the key as 64
// lower-case hexadecimal digits; the first 4 bytes of the SHA-256 of "ledger seal 1 key file" and
// the key, as 8 digits. One under a passphrase is in docs/format/sealed.md.
//
// # Why
//
// The Sealer makes an id of 16 bytes at the moment of sealing, so every key is new. Therefore the
// nonce can be a counter, and no retry can seal two contents with one key and nonce. The id is the
// beginning of the HMAC-SHA-256, with the key for names, of "ledger seal 1 id", 16 random bytes,
// and content: the first frame, and what else is known before, for Seal the whole plaintext. A
// source of randomness may repeat itself, as when a snapshot of a virtual machine is started twice.
// Then two contents get one key only if they are equal that far. For the same reason the two keys
// of a ring are HKDF-SHA-256 of 64 random bytes and its content, with its head as salt and info
// "ledger seal 1 draw". Among 2^40 objects two share an id with a probability of 2^-49, and they
// would have to share role and name too. A name of 20 bytes keeps paths short: among 2^40 names two
// are equal with a probability of 2^-81, and a search for a pair needs the key and 2^80 tries. The
// key check distinguishes a wrong key from damage, and binds a slot to one master key, which GCM
// alone does not. The key of a ring is wrapped with X25519: the
// writer of the next ring has only the secret of its own slot, and a party that was shut out must
// not have a secret that opens the other slots.
//
// # Invariants
//
//	I1: an object of another algorithm than the bucket's is never opened.
//	I2: an object's key follows from all of its head, role and name, and the same goes into the
//	    associated data.
//	I3: nothing is allocated for a length that has not been compared with a limit, nor
//	    decompressed beyond the declared length, which has been.
//	I4: no plaintext is given out whose tag has not been verified.
//	I5: errors, logs and formatted values carry role, name, lengths and numbers; never plaintext
//	    or keys.
//
// Keyring, Sealer, Ring, Chain and MasterKey may be used concurrently; a Writer, Stream or
// Compressor by one goroutine at a time. The package starts no goroutine. Of the module
// it imports internal/base and internal/secret. It must not import packages of buckets, pages or
// storage. docs/format/sealed.md has the layouts for readers. The package may change with any
// release.
package seal
