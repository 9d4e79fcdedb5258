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
// docs/format/sealed.md has the layouts of objects, rings, names and key files. Bytes that are not
// listed there are zero and reserved; other values are refused.
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
// storage. The package may change with any release.
package seal
