package cli

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/spf13/cobra"
)

// spaceFlags bound what pages take on this disk.
type spaceFlags struct{ quota, free, values int64 }

func (f *spaceFlags) add(cmd *cobra.Command) {
	addParsed(cmd, &f.quota, "quota", "what the pages may take, a `size` such as 20G (default: no bound)", parseSize)
	addParsed(cmd, &f.free, "keep-free", "what stays free on the disk, a `size` such as 5G (default: no bound)", parseSize)
	addParsed(cmd, &f.values, "keep-values", "how much stays of the values that the cloud has, a `size` such as 10G (default: all)", parseSize)
}

// options puts the bounds into o.
func (f *spaceFlags) options(o *ledger.Options) {
	o.Quota, o.FreeSpaceFloor, o.ValueBytes = f.quota, f.free, f.values
}

// keep has the bounds kept that the repository was opened with, before a verb ends.
func (f *spaceFlags) keep(ctx context.Context, repo *ledger.Repository) error {
	if *f == (spaceFlags{}) {
		return nil
	}
	return partly(admin.KeepSpace(ctx, repo), true)
}

// paceFlags bound how fast sync is.
type paceFlags struct{ up, down int64 }

func (f *paceFlags) add(cmd *cobra.Command) {
	addParsed(cmd, &f.up, "upload-limit", "what goes up in a second at most, a `size` such as 512K (default: no limit)", parseRate)
	addParsed(cmd, &f.down, "download-limit", "what comes down in a second at most, a `size` such as 2M (default: no limit)", parseRate)
}

// options puts the bounds into o.
func (f *paceFlags) options(o *ledger.Options) {
	o.Sync.Limits.UploadBytesPerSecond, o.Sync.Limits.DownloadBytesPerSecond = f.up, f.down
}
