package ledger

import (
	"context"
	"fmt"
)

// settleWanted takes over what Options.Cloud says of the cloud that is remembered: where its key is
// now. Errors: ErrConflict and ErrCloudReplaced for another cloud, those of writing the file.
func (r *Repository) settleWanted(file *cloudFile) (*cloudFile, error) {
	want := r.cloud.wanted
	if want == nil {
		return file, nil
	}
	if want.url != file.url {
		return nil, fmt.Errorf("the options name the cloud %s, and the repository has %s, which SetCloud changes: %w", want.url, file.url, ErrConflict)
	}
	ring, err := file.ring()
	if err == nil {
		err = want.checkPin(ring.BucketID)
	}
	if err != nil {
		return nil, err
	}
	r.cloud.wanted = nil
	next := *file
	next.source, next.keyFile, next.shared, next.credentials = want.source, want.keyFile, want.shared, want.credentials
	same := next.source == file.source && next.keyFile == file.keyFile && next.shared == file.shared && next.credentials == file.credentials
	if same || r.o.ReadOnly {
		return &next, nil
	}
	return &next, r.writeCloudFile(&next)
}

// joinWanted makes the repository a device of the cloud that Options.Cloud names. The caller has
// the cloud's turn.
func (r *Repository) joinWanted(ctx context.Context, wanted *cloudFile) error {
	r.cloud.mu.Lock()
	pass := r.cloud.pass
	r.cloud.mu.Unlock()
	file := *wanted // join changes what it is given, also when it fails
	err := r.setCloud(ctx, &file, pass)
	if err != nil && ctx.Err() == nil {
		r.cloud.set(func(c *cloud) { c.err = err })
	}
	return err
}
