package outgoing

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/spool"
)

// spillBytes is how much of an object is held in memory before it goes to a file.
const spillBytes = 16 << 20

// spill returns a Spool for an object whose length is known only at its end. What it gets is
// sealed.
func (p *Page) spill() *spool.Spool { return spool.New(p.o.Store.TempDir(), "upload-*", spillBytes) }

// putSpilled uploads what is in s as an object that nobody else makes: when the name is taken by
// one of the same length, an earlier try has done it.
func putSpilled(ctx context.Context, b bucket.Bucket, name string, s *spool.Spool) error {
	r, err := s.Reader()
	if err != nil {
		return err
	}
	err = b.PutIfAbsent(ctx, name, s.Size(), r)
	if errors.Is(err, bucket.ErrExists) {
		if size, _, lookErr := look(ctx, b, name); lookErr == nil && size == s.Size() {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("upload %s: %w", name, err)
	}
	return nil
}
