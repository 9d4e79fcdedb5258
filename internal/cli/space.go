package cli

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// spaceFlags bound what pages take on this disk.
type spaceFlags struct {
	Quota  size `flag:"quota" usage:"what the pages may take, a size such as 20G (default: no bound)"`
	Free   size `flag:"keep-free" usage:"what stays free on the disk, a size such as 5G (default: no bound)"`
	Values size `flag:"keep-values" usage:"how much stays of the values that the cloud has, a size such as 10G (default: all)"`
}

// bound puts the bounds into o.
func (f *spaceFlags) bound(o *ledger.Options) {
	o.Quota, o.FreeSpaceFloor, o.ValueBytes = int64(f.Quota), int64(f.Free), int64(f.Values)
}

// keep has the bounds kept that the repository was opened with, before a verb ends.
func (f *spaceFlags) keep(ctx context.Context, repo *ledger.Repository) error {
	if *f == (spaceFlags{}) {
		return nil
	}
	return partly(admin.KeepSpace(ctx, repo), true)
}

// paceFlags bound how fast sync is.
type paceFlags struct {
	Up   rate `flag:"upload-limit" usage:"what goes up in a second at most, a size such as 512K (default: no limit)"`
	Down rate `flag:"download-limit" usage:"what comes down in a second at most, a size such as 2M (default: no limit)"`
}

// limit puts the bounds into o.
func (f *paceFlags) limit(o *ledger.Options) {
	o.Sync.Limits.UploadBytesPerSecond, o.Sync.Limits.DownloadBytesPerSecond = int64(f.Up), int64(f.Down)
}
