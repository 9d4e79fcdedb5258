package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync"
)

type cloudCheckFlags struct {
	Pages  pageRefs `arg:"..."`
	Repair bool     `flag:"repair" usage:"repair damage with the data of this device"`
}

func (a *app) cloudCheck(ctx context.Context, repo *ledger.Repository, f cloudCheckFlags) error {
	p := a.startProgress(ctx, "checking", "objects")
	o := admin.CloudCheckOptions{Pages: f.Pages, Repair: f.Repair, Progress: p.follow}
	reports, err := admin.CheckCloud(ctx, repo, &o)
	p.finish()
	count, bytes, left, newer, missing, repaired := 0, int64(0), 0, 0, 0, false
	for _, r := range reports {
		a.printCloudCheck(r)
		count, bytes, newer = count+r.Objects, bytes+r.Bytes, newer+len(r.Newer)
		missing, repaired = missing+r.Missing, repaired || r.Repaired
		if !r.Repaired {
			left += len(r.Damaged) + r.More
		}
	}
	differs := func(r admin.CloudCheckReport) bool { return r.Err == nil || r.Err.Error() != reports[0].Err.Error() }
	if len(reports) > 1 && reports[0].Err != nil && !slices.ContainsFunc(reports, differs) {
		return reports[0].Err // the error concerns the bucket
	}
	if err != nil {
		return err
	}
	if left > 0 {
		err := fmt.Errorf("%s in the bucket %s damaged or missing: %w", countText(left, "objects"),
			choose(left == 1, "is", "are"), ledger.ErrCorrupt)
		return withHint(err, "on a device with their content: %s", a.command("cloud", "check", "--repair"))
	}
	if newer > 0 {
		return fmt.Errorf("%s in the bucket written by a newer program: %w", countText(newer, "objects"), ledger.ErrUnsupported)
	}
	what := choose(repaired, "the rest was", "everything")
	a.summary("%s, %s: %s verified\n", countText(count, "objects"), sizeText(bytes), what)
	if missing > 0 {
		a.tell("%s of values are neither here nor in the bucket; a device that has them sends them at its next sync", countText(missing, "pieces"))
	}
	return nil
}

func (a *app) printCloudCheck(r admin.CloudCheckReport) {
	found := func(d cloudsync.DamagedObject) object {
		return object{"object", d.Name, "message", plain(errText(d.Err))}
	}
	told := r.Err != nil // by the error of the verb
	if a.json || !a.quiet && !told || len(r.Damaged)+len(r.Newer) > 0 {
		a.show(object{
			"page", nameOf(r.Ledger, r.Name, r.ID), "objects", r.Objects, "bytes", size(r.Bytes), "damaged", objects(r.Damaged, found),
			"moreDamaged", r.More, "newer", objects(r.Newer, found), "repaired", r.Repaired, "missingPieces", r.Missing, "error?", r.Err,
		})
	}
}
