package cloudsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// Connect opens the keyring of a bucket with the master key, or makes one if the bucket has none
// and create is set. The zero master key makes and opens plaintext buckets. If several calls make
// one at once, one wins and all get the winner's; created reports that this call won. random is the
// source of keys, nil the system's. Requests are retried as bucket.RetryTable says.
//
// Errors: seal.ErrWrongKey, seal.ErrShutOut, seal.ErrPlaintext, base.ErrNotFound when there is no
// keyring and create is not set, *base.CorruptError, *base.FormatError, an error that matches
// base.ErrUnsupported for a bucket of an older format, those of the bucket.
func Connect(ctx context.Context, b bucket.Bucket, master seal.MasterKey, create bool, random io.Reader) (ring *seal.Keyring, created bool, err error) {
	b = bucket.NewRetry(b, bucket.RetryOptions{})
	chain, err := readChain(ctx, b)
	if errors.Is(err, base.ErrNotFound) && create {
		if created, err = makeKeyring(ctx, b, master, random); err == nil {
			chain, err = readChain(ctx, b)
		}
	}
	if err == nil {
		ring, err = chain.Open(master)
	}
	if err != nil {
		return nil, false, fmt.Errorf("connect to %s: %w", b, err)
	}
	return ring, created, nil
}

// ReadKeys returns the chain of a bucket's keyring, which says how to derive a master key. Errors:
// base.ErrNotFound when there is none, *base.CorruptError, *base.FormatError, one that matches
// base.ErrUnsupported for a bucket of an older format, those of the bucket. ReadKeys itself does
// not retry.
func ReadKeys(ctx context.Context, b bucket.Bucket) (*seal.Chain, error) {
	chain, err := readChain(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("read the keyring of %s: %w", b, err)
	}
	return chain, nil
}

// ErrOldFormat reports a bucket that was made by an older version. It matches base.ErrUnsupported.
var ErrOldFormat = seal.ErrOldFormat

// ringReads is how often a bad ring is read: it may have changed in transit.
const ringReads = 3

// readChain reads all rings.
func readChain(ctx context.Context, b bucket.Bucket) (*seal.Chain, error) {
	first, err := ReadRing(ctx, b, wire.FirstRing)
	if errors.Is(err, base.ErrNotFound) {
		if o, oldErr := b.Get(ctx, wire.OldFormatName, 0, 0); oldErr == nil {
			return nil, errors.Join(ErrOldFormat, o.Body.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	chain, err := seal.ParseChain([][]byte{first.Bytes()})
	if err != nil {
		return nil, damagedIf(err)
	}
	id := chain.Newest().BucketID
	infos, err := listAll(ctx, b, wire.KeysPrefix, wire.FirstRing)
	if err != nil {
		return nil, fmt.Errorf("list the keyring: %w", err)
	}
	for _, info := range infos {
		number, ok := wire.ParseRingName(id, info.Name)
		if !ok {
			continue
		}
		ring, err := ReadRing(ctx, b, info.Name)
		if err == nil {
			chain, err = chain.Append(ring.Bytes()) // Append reports an error also if a ring before this one is missing
		}
		if err != nil {
			return nil, fmt.Errorf("read ring %d of the keyring: %w", number, damagedIf(err))
		}
	}
	return chain, nil
}

// ReadRing reads a ring of a bucket's keyring by its name. It reads a bad ring a few times. Errors:
// base.ErrNotFound; *base.CorruptError, with ErrBucketDamaged, for an object that is not a ring;
// *base.FormatError; ErrOldFormat; those of the bucket.
func ReadRing(ctx context.Context, b bucket.Bucket, name string) (ring *seal.Ring, err error) {
	for range ringReads {
		content, readErr := readAll(ctx, b, name, seal.MaxKeyringBytes)
		if readErr != nil {
			return nil, damagedIf(readErr)
		}
		if ring, err = seal.ParseRing(content); err == nil {
			return ring, nil
		}
	}
	return nil, damagedIf(fmt.Errorf("object %s: %w", name, err))
}

// firstSlot is the label of the slot of a new keyring.
const firstSlot = "first key"

// makeKeyring puts the first ring of a new keyring, unless the bucket has one. It reports whether
// the ring there now is the one that it made.
func makeKeyring(ctx context.Context, b bucket.Bucket, master seal.MasterKey, random io.Reader) (bool, error) {
	algorithm, slot := seal.AES256GCM, seal.NewSlot{Master: master, Label: firstSlot}
	if master.IsZero() {
		algorithm, slot = seal.Plain, seal.NewSlot{}
	}
	ring, err := seal.NewKeyring(algorithm, random)
	if err != nil {
		return false, err
	}
	raw, _, err := ring.Found(slot, random)
	if err != nil {
		return false, err
	}
	return putRing(ctx, b, wire.FirstRing, raw)
}

// putRing puts a ring, unless the name is taken. It reports whether the ring there now is this one.
func putRing(ctx context.Context, b bucket.Bucket, name string, ring []byte) (bool, error) {
	err := b.PutIfAbsent(ctx, name, int64(len(ring)), bytes.NewReader(ring))
	if err == nil {
		return true, nil
	}
	if !bucket.Ambiguous(err) {
		if errors.Is(err, bucket.ErrExists) {
			return false, nil
		}
		return false, err
	}
	there, readErr := readAll(ctx, b, name, seal.MaxKeyringBytes) // the write may have landed
	if readErr != nil {
		return false, errors.Join(err, readErr)
	}
	return bytes.Equal(there, ring), nil
}

// readAll is bucket.Read without the attributes of the object.
func readAll(ctx context.Context, b bucket.Bucket, name string, limit int64) ([]byte, error) {
	content, _, err := bucket.Read(ctx, b, name, limit)
	return content, err
}
