package cli

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/spf13/cobra"
)

// spaceFlags bound what pages take on this disk.
type spaceFlags struct{ quota, free, values string }

func (f *spaceFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.quota, "quota", "", "what the pages may take, such as 20G (default: no bound)")
	flags.StringVar(&f.free, "keep-free", "", "what stays free on the disk, such as 5G (default: no bound)")
	flags.StringVar(&f.values, "keep-values", "", "how much stays of the values that the cloud has, such as 10G (default: all)")
}

// options reads the flags.
func (f *spaceFlags) options(cmd *cobra.Command, o *ledger.Options) error {
	for _, b := range []struct {
		name, text string
		to         *int64
	}{{"quota", f.quota, &o.Quota}, {"keep-free", f.free, &o.FreeSpaceFloor}, {"keep-values", f.values, &o.ValueBytes}} {
		n, err := parseSize(b.text)
		if err != nil {
			return usagef(cmd, "--%s %q: %w", b.name, b.text, err)
		}
		*b.to = n
	}
	return nil
}

// keep has the bounds kept that the repository was opened with, before a verb ends.
func (f *spaceFlags) keep(ctx context.Context, repo *ledger.Repository) error {
	if *f == (spaceFlags{}) {
		return nil
	}
	return partly(repo.KeepSpace(ctx), true)
}
