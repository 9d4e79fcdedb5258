package cli

import (
	"cmp"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync"
)

// Prices in US dollars of Google Cloud Storage, standard class, one region, for the estimate of
// status: what requests and downloads cost, not storing.
const (
	priceClassA  = 0.005 / 1000  // a put or list
	priceClassB  = 0.0004 / 1000 // a get
	priceDownGiB = 0.12          // of egress to the Internet, first TiB of a month
)

// costOf estimates what the figures cost, in US dollars.
func costOf(c *admin.CloudStatus) float64 {
	return float64(c.A)*priceClassA + float64(c.B)*priceClassB + float64(c.Down)/(1<<30)*priceDownGiB
}

// cloudStatusObject is the cloud in status --json; nil for none.
func cloudStatusObject(c *admin.CloudStatus) object {
	if c == nil {
		return nil
	}
	return append(cloudObject(c.CloudInfo), "lastSuccess?", c.LastSuccess, "oldestUnsynced?", c.OldestUnsynced, "since?", c.Since,
		"classA", c.A, "classB", c.B, "free", c.Free, "upBytes", c.Up, "downBytes", c.Down, "retries", c.Retries,
		"entries", c.Entries, "applied", c.Applied, "checkpoints", c.Checkpoints, "costEstimateDollars", costOf(c))
}

// agoText is a time with how long ago it was, for people; "never" for none.
func (a *app) agoText(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	text := clockText(t)
	if ago := a.process.Clock.Now().Sub(t); ago >= 0 {
		text += ", " + ago.Round(time.Second).String() + " ago"
	}
	return text
}

// cloudStatus prints the state of the cloud.
func (a *app) cloudStatus(c *admin.CloudStatus) {
	if c == nil {
		a.printf("cloud       none\n")
		return
	}
	a.printCloud(c.CloudInfo)
	a.printf("last sync   %s\n", a.agoText(c.LastSuccess))
	a.printIf(!c.OldestUnsynced.IsZero(), "oldest unsynced %s\n", a.agoText(c.OldestUnsynced))
	if c.Since.IsZero() {
		return // what is remembered of it is damaged
	}
	a.printf("requests    %d of class A (put, list), %d of class B (get), %d free, %d repeated, since %s\n",
		c.A, c.B, c.Free, c.Retries, c.Since.UTC().Format("2006-01-02"))
	a.printf("bytes       %s up, %s down\n", sizeText(c.Up), sizeText(c.Down))
	a.printf("cost        about $%.6f at the prices of Google Cloud Storage, without storing\n", costOf(c))
}

// syncProgressObject is how far one direction is, in status --json; nil when nothing is on its way.
func syncProgressObject(a cloudsync.Activity, p cloudsync.Progress) object {
	if a != ledger.SyncInProgress {
		return nil
	}
	return object{"values", p.Values, "totalValues", p.TotalValues, "bytes", p.Bytes, "totalBytes", p.TotalBytes}
}

// syncErr is why a page is not in step, nil when nothing is wrong.
func syncErr(s ledger.SyncState) error { return cmp.Or(s.UploadErr, s.DownloadErr) }

// syncStateObject is the state of sync of a page in status --json.
func syncStateObject(s ledger.SyncState) object {
	return object{
		"upload", s.Upload, "download", s.Download, "position", s.Position, "oldestUnsynced?", s.OldestUnsynced, "lastSuccess?", s.LastSuccess,
		"serverTime?", s.ServerTime, "paused?", s.Paused, "syncError?", syncErr(s),
		"up?", syncProgressObject(s.Upload, s.Up), "down?", syncProgressObject(s.Download, s.Down),
	}
}

// syncProgress prints how far one direction is, if it is under way.
func (a *app) syncProgress(where string, activity cloudsync.Activity, p cloudsync.Progress) {
	a.printIf(activity == ledger.SyncInProgress, "  %-9s %d of %s, %s of %s\n",
		where, p.Values, countText(int(p.TotalValues), "value"), sizeText(p.Bytes), sizeText(p.TotalBytes))
}

// syncState prints the state of sync of a page.
func (a *app) syncState(s ledger.SyncState) {
	a.printf("  sync      upload %s, download %s, entry %d, last %s\n", s.Upload, s.Download, s.Position, a.agoText(s.LastSuccess))
	a.syncProgress("up", s.Upload, s.Up)
	a.syncProgress("down", s.Download, s.Down)
	a.printIf(!s.ServerTime.IsZero(), "  received  newest entry of others written %s\n", a.agoText(s.ServerTime))
	a.printIf(!s.OldestUnsynced.IsZero(), "  oldest    unsynced since %s\n", a.agoText(s.OldestUnsynced))
	a.printIf(syncErr(s) != nil, "  problem   the last sync: %s\n", errText(syncErr(s)))
}
