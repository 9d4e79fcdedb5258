package cloudlink

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// settleWanted takes over the settings of the options for the stored cloud: the present place of
// its key. Errors: base.ErrConflict and cloudsync.ErrBucketReplaced for another cloud, those of
// writing the file.
func (l *Link) settleWanted(f *file) (*file, error) {
	want := l.wanted
	if want == nil {
		return f, nil
	}
	if want.url != f.url {
		return nil, fmt.Errorf("the options name the cloud %s, and the repository has %s, which SetCloud changes: %w", want.url, f.url, base.ErrConflict)
	}
	ring, err := f.ring()
	if err == nil {
		err = want.checkPin(ring.BucketID)
	}
	if err != nil {
		return nil, err
	}
	l.wanted = nil
	next := *f
	next.source, next.keyFile, next.shared, next.credentials = want.source, want.keyFile, want.shared, want.credentials
	same := next.source == f.source && next.keyFile == f.keyFile && next.shared == f.shared && next.credentials == f.credentials
	if same || l.o.ReadOnly {
		return &next, nil
	}
	return &next, l.writeFile(&next)
}

// joinWanted makes the repository a device of the cloud of Options.Cloud. The caller holds the
// cloud's turn.
func (l *Link) joinWanted(ctx context.Context, wanted *file) error {
	f := *wanted // a copy: join changes it even when it fails
	err := l.setFile(ctx, &f, l.passphrase())
	if err != nil && ctx.Err() == nil {
		l.set(func(l *Link) { l.err = err })
	}
	return err
}
