package pack

import (
	"bytes"
	"context"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

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
