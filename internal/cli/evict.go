package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

type evictFlags struct {
	consent
	Pages     pageRefs `arg:"..."`
	Free      size     `flag:"free" usage:"evict pages until this size is freed, such as 500M or 2G"`
	OlderThan age      `flag:"older-than" usage:"evict pages that were closed longer ago than this time, such as 12h, 30d or 8w"`
	Discard   bool     `flag:"discard-unsynced" usage:"evict named pages even if data is lost that only this device has"`
	Keep      size     `flag:"keep-values" usage:"with --values, keep values up to this size, such as 500M or 2G"`
	Values    bool     `flag:"values" usage:"drop values that the cloud has, and keep the pages"`
}

func (a *app) evict(ctx context.Context, f evictFlags) error {
	o := admin.EvictOptions{
		Pages: f.Pages, DiscardUnsynced: f.Discard, Values: f.Values,
		OlderThan: time.Duration(f.OlderThan), FreeBytes: int64(f.Free), KeepBytes: int64(f.Keep),
	}
	if err := o.Check(); err != nil {
		return wrong(err)
	}
	danger := choose(f.Discard, "data that only this device has cannot be restored", "")
	return a.destroy(ctx, f.consent, danger, func(dry bool) error {
		o.DryRun = dry
		return a.change(ctx, func(repo *ledger.Repository) error {
			report, err := admin.Evict(ctx, repo, &o)
			return a.evicted(report, o, err)
		})
	})
}

// evicted prints the evicted pages, those that were away already, and the sum. The error is about
// the named pages that stay.
func (a *app) evicted(r admin.EvictReport, o admin.EvictOptions, err error) error {
	named := is[*ledger.EvictError](err)
	if named {
		err = nil
	}
	for _, e := range slices.Concat(r.Evicted, r.Kept) {
		stays := named && e.Bar != admin.EvictFree && e.Bar != admin.EvictAway
		if stays {
			err = errors.Join(err, a.stays(e.PageRef, e.Name, e.Bar, e.Reason))
		}
		if a.json || !stays && (named || e.Bar == admin.EvictFree) {
			a.evictLine(&e, o)
		}
	}
	if o.DryRun || err == nil {
		a.summary("%s of %s %s\n", sizeText(r.FreedBytes), countText(len(r.Evicted), "pages"),
			choose(o.DryRun, "would be freed", choose(o.Values, "dropped; gc --compact frees the space", "freed")))
	}
	if err == nil && o.FreeBytes > r.FreedBytes {
		stay := ""
		if n := len(r.Kept); n > 0 {
			stay = fmt.Sprintf(": %s %s open or not in the cloud (see %s)", countText(n, "pages"),
				choose(n == 1, "stays, because it is", "stay, because they are"), a.command("status", "--space"))
		}
		a.warn(fmt.Errorf("less than %s can be freed%s", sizeText(o.FreeBytes), stay))
	}
	return partly(err, len(r.Evicted) > 0)
}

func (a *app) evictLine(e *admin.EvictResult, o admin.EvictOptions) {
	bar := barText(e.Bar)
	evicted := bar == "" && !o.Values
	a.outcome(o.DryRun, choose(bar != "", "", choose(o.Values, "stripped of values", "evicted")), object{
		"page", nameOf(e.Ledger, e.Name, e.ID), "evicted!", evicted, "bytes", size(e.Bytes), "bar!?", bar, "reason?", plain(e.Reason),
		"discardsUnsyncedData", e.Discarded,
	})
}

// barText is the reason, in a word, why a page cannot be evicted; "" when it can.
func barText(bar admin.EvictBar) string { return choose(bar != admin.EvictFree, bar.String(), "") }

// stays returns an error about a page that cannot be evicted or deleted, with a hint.
func (a *app) stays(page ledger.PageRef, name string, bar admin.EvictBar, reason string) error {
	name = nameOf(page.Ledger, name, page.ID)
	err := classedf(ledger.ErrConflict, "page %s stays: %s", name, reason)
	hint, lose := a.command("sync", name), bar.Discardable()
	switch bar {
	case admin.EvictOpen:
		hint = "wait for the command that uses it, or end the program that has it open"
	case admin.EvictDamaged:
		hint, lose = a.command("check", "--repair", name), a.verb.Name() == "delete"
	case admin.EvictBlank:
		hint, lose = a.command("delete", name)+" removes it", false
	case admin.EvictUnproved:
		lose = false // when the bucket can be asked again, nothing need be lost
	case admin.EvictNoCloud:
		hint = a.command("cloud", "set", "URL", "--key-file", "FILE")
	}
	return withHint(err, "%s%s", hint, choose(lose, ", or discard unsynced data with --discard-unsynced", ""))
}
