package cli

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/spf13/cobra"
)

// spaceFlags bound what pages take on this disk.
type spaceFlags struct{ quota, free, values sizeFlag }

func (f *spaceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.quota, "quota", "what the pages may take, such as 20G (default: no bound)")
	flags.Var(&f.free, "keep-free", "what stays free on the disk, such as 5G (default: no bound)")
	flags.Var(&f.values, "keep-values", "how much stays of the values that the cloud has, such as 10G (default: all)")
}

// options puts the bounds into o.
func (f *spaceFlags) options(o *ledger.Options) {
	o.Quota, o.FreeSpaceFloor, o.ValueBytes = int64(f.quota), int64(f.free), int64(f.values)
}

// keep has the bounds kept that the repository was opened with, before a verb ends.
func (f *spaceFlags) keep(ctx context.Context, repo *ledger.Repository) error {
	if *f == (spaceFlags{}) {
		return nil
	}
	return partly(repo.KeepSpace(ctx), true)
}

// paceFlags bound how fast sync is.
type paceFlags struct{ up, down rateFlag }

func (f *paceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.up, "upload-limit", "what goes up in a second at most, such as 512K (default: no limit)")
	flags.Var(&f.down, "download-limit", "what comes down in a second at most, such as 2M (default: no limit)")
}

// options puts the bounds into o.
func (f *paceFlags) options(o *ledger.Options) {
	o.Sync.Limits.UploadBytesPerSecond, o.Sync.Limits.DownloadBytesPerSecond = int64(f.up), int64(f.down)
}
