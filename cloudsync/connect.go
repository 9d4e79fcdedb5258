package cloudsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// Connect opens the keyring of a bucket with the master key, or makes one when the bucket has none and create is set; secret
// is then its chunking secret (32 bytes; nil: a random one). The zero master key makes and opens plaintext buckets. Of
// several that make one at once, one wins, and all get that. created says that it is this call's. random is the source of
// keys, nil the system's. Requests are made again as bucket.RetryTable says.
//
// Errors: seal.ErrWrongKey, seal.ErrPlaintext, base.ErrNotFound when there is no keyring and create is not set,
// *base.CorruptError, *base.FormatError, base.ErrInvalid for a secret of another length, those of the bucket.
func Connect(ctx context.Context, b bucket.Bucket, master seal.MasterKey, create bool, secret []byte, random io.Reader) (ring *seal.Keyring, created bool, err error) {
	b = bucket.NewRetry(b, bucket.RetryOptions{})
	wrapped, err := readWrapped(ctx, b)
	if errors.Is(err, base.ErrNotFound) && create {
		if created, err = makeKeyring(ctx, b, master, secret, random); err == nil {
			wrapped, err = readWrapped(ctx, b)
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("connect to %s: %w", b, err)
	}
	if ring, err = wrapped.Open(master); err != nil {
		return nil, false, fmt.Errorf("connect to %s: %w", b, err)
	}
	return ring, created, nil
}

// ReadWrapped returns the wrapped keyring of a bucket, from which one learns how to derive the master key. Errors:
// base.ErrNotFound when there is none, *base.CorruptError, *base.FormatError, those of the bucket.
func ReadWrapped(ctx context.Context, b bucket.Bucket) (*seal.Wrapped, error) {
	b = bucket.NewRetry(b, bucket.RetryOptions{})
	wrapped, err := readWrapped(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("read the keyring of %s: %w", b, err)
	}
	return wrapped, nil
}

// keyringReads is how often a keyring is read that is not what it should be: its first bytes say what it is, and what has changed on its way is another one.
const keyringReads = 3

func readWrapped(ctx context.Context, b bucket.Bucket) (w *seal.Wrapped, err error) {
	for range keyringReads {
		content, readErr := readAll(ctx, b, format.FormatName, seal.MaxKeyringBytes)
		if readErr != nil {
			return nil, damagedIf(readErr)
		}
		if w, err = seal.ParseKeyring(content); err == nil {
			return w, nil
		}
	}
	return nil, damagedIf(err)
}

// makeKeyring puts a new keyring, unless there is one. It reports whether the one that is there now is the one it made.
func makeKeyring(ctx context.Context, b bucket.Bucket, master seal.MasterKey, secret []byte, random io.Reader) (bool, error) {
	algorithm := seal.AES256GCM
	if master.IsZero() {
		algorithm = seal.Plain
	}
	ring, err := seal.NewKeyring(algorithm, random)
	if secret != nil {
		ring, err = seal.NewKeyringWith(algorithm, secret, random)
	}
	if err != nil {
		return false, err
	}
	wrapped, err := ring.Wrap(master, random)
	if err != nil {
		return false, err
	}
	err = b.PutIfAbsent(ctx, format.FormatName, int64(len(wrapped)), bytes.NewReader(wrapped))
	if err == nil {
		return true, nil
	}
	if !bucket.Ambiguous(err) {
		if errors.Is(err, bucket.ErrExists) {
			return false, nil
		}
		return false, err
	}
	there, readErr := readAll(ctx, b, format.FormatName, seal.MaxKeyringBytes) // the write may have landed
	if readErr != nil {
		return false, errors.Join(err, readErr)
	}
	return bytes.Equal(there, wrapped), nil
}

// readAll returns the content of an object of at most limit bytes. Errors: *base.CorruptError for a longer one, those of the bucket.
func readAll(ctx context.Context, b bucket.Bucket, name string, limit int64) ([]byte, error) {
	o, err := b.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	if o.Size < 0 || o.Size > limit {
		return nil, &base.CorruptError{Where: "bucket", Key: name, Want: fmt.Sprintf("at most %d bytes", limit), Got: fmt.Sprint(o.Size)}
	}
	content := make([]byte, o.Size)
	if _, err := io.ReadFull(o.Body, content); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}
