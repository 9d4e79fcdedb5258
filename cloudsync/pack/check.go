package pack

import (
	"bytes"
	"context"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/object"
)

// ReadPieces gives fn the pieces of a pack that can be read, passing over frames that are damaged. Errors: those of Check for a pack whose table cannot be read, and those of fn.
func ReadPieces(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n format.PageNames, id format.ID, fn func(d object.Digest) error) error {
	src := packSource(b, n, id)
	buf := streamPool.Get().(*[]byte)
	defer streamPool.Put(buf)
	sealed, size, err := src.readSome(ctx, 0, -1, format.MaxPackObjectBytes, *buf)
	if err != nil {
		return src.wrap(err)
	}
	*buf = sealed
	r, c, err := openContents(bytes.NewReader(sealed), src, s, n, id, size)
	if err != nil {
		return src.wrap(err)
	}
	for i := range c.frames {
		plain, err := r.ReadFrame(i)
		if err == nil {
			err = verify(src, opened{plain, c.inFrame(uint32(i))})
		}
		if err != nil {
			continue
		}
		for _, p := range c.inFrame(uint32(i)) {
			if err := fn(p.Digest); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// Check reads a whole pack with one request and verifies its table and every piece. It returns how long the object is, and holds all of it, which is at most format.MaxPackObjectBytes.
// Errors: *base.CorruptError naming the pack, also for an object that is none; *base.FormatError; base.ErrNotFound and others of the bucket.
func Check(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n format.PageNames, id format.ID) (int64, error) {
	src := packSource(b, n, id)
	buf := streamPool.Get().(*[]byte)
	defer streamPool.Put(buf)
	sealed, size, err := src.readSome(ctx, 0, -1, format.MaxPackObjectBytes, *buf)
	if err != nil {
		return size, src.wrap(err)
	}
	*buf = sealed
	r, c, err := openContents(bytes.NewReader(sealed), src, s, n, id, size)
	if err != nil {
		return size, src.wrap(err)
	}
	for i := range c.frames {
		if err := ctx.Err(); err != nil {
			return size, src.wrap(context.Cause(ctx))
		}
		plain, err := r.ReadFrame(i)
		if err == nil {
			err = verify(src, opened{plain, c.inFrame(uint32(i))})
		}
		if err != nil {
			return size, src.wrap(err)
		}
	}
	return size, nil
}
