package cli

import (
	"fmt"
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

// cloudStatusJSON is the cloud in status --json.
type cloudStatusJSON struct {
	cloudJSON
	LastSuccess    string  `json:"lastSuccess,omitempty"`
	OldestUnsynced string  `json:"oldestUnsynced,omitempty"`
	Since          string  `json:"since,omitempty"`
	ClassA         int64   `json:"classA"`
	ClassB         int64   `json:"classB"`
	Free           int64   `json:"free"`
	Up             int64   `json:"upBytes"`
	Down           int64   `json:"downBytes"`
	Retries        int64   `json:"retries"`
	Entries        int64   `json:"entries"`
	Applied        int64   `json:"applied"`
	Checkpoints    int64   `json:"checkpoints"`
	Dollars        float64 `json:"costEstimateDollars"`
}

// timeOrNone is a time as --json prints it, "" for none.
func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return timeText(t)
}

func newCloudStatusJSON(c *admin.CloudStatus) *cloudStatusJSON {
	if c == nil {
		return nil
	}
	return &cloudStatusJSON{
		newCloudJSON(c.CloudInfo), timeOrNone(c.LastSuccess), timeOrNone(c.OldestUnsynced), timeOrNone(c.Since), c.A, c.B, c.Free,
		c.Up, c.Down, c.Retries, c.Entries, c.Applied, c.Checkpoints, costOf(c),
	}
}

// agoText is a time with how long ago it was, for people; "never" for none.
func (a *app) agoText(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	text := t.UTC().Format("2006-01-02 15:04:05")
	if ago := a.process.Clock.Now().Sub(t); ago >= 0 {
		text += ", " + ago.Round(time.Second).String() + " ago"
	}
	return text
}

// cloudStatus prints the state of the cloud.
func (a *app) cloudStatus(c *admin.CloudStatus) error {
	if c == nil {
		a.printf("cloud       none\n")
		return nil
	}
	if err := a.printCloud(c.CloudInfo); err != nil {
		return err
	}
	a.printf("last sync   %s\n", a.agoText(c.LastSuccess))
	if !c.OldestUnsynced.IsZero() {
		a.printf("oldest unsynced %s\n", a.agoText(c.OldestUnsynced))
	}
	if c.Since.IsZero() {
		return nil // what is remembered of it is damaged
	}
	a.printf("requests    %d of class A (put, list), %d of class B (get), %d free, %d repeated, since %s\n",
		c.A, c.B, c.Free, c.Retries, c.Since.UTC().Format("2006-01-02"))
	a.printf("bytes       %s up, %s down\n", sizeText(c.Up), sizeText(c.Down))
	a.printf("cost        about $%.6f at the prices of Google Cloud Storage, without storing\n", costOf(c))
	return nil
}

// syncStateJSON is the state of sync of a page in status --json.
type syncStateJSON struct {
	Upload         string `json:"upload"`
	Download       string `json:"download"`
	Position       uint64 `json:"position"`
	OldestUnsynced string `json:"oldestUnsynced,omitempty"`
	LastSuccess    string `json:"lastSuccess,omitempty"`
	ServerTime     string `json:"serverTime,omitempty"`
	Paused         bool   `json:"paused,omitempty"`
	Error          string `json:"syncError,omitempty"`

	Up   *syncProgressJSON `json:"up,omitempty"`
	Down *syncProgressJSON `json:"down,omitempty"`
}

// syncProgressJSON is how far one direction is, in status --json; nil when nothing is on its way.
type syncProgressJSON struct {
	Values      int64 `json:"values"`
	TotalValues int64 `json:"totalValues"`
	Bytes       int64 `json:"bytes"`
	TotalBytes  int64 `json:"totalBytes"`
}

func newSyncProgressJSON(a cloudsync.Activity, p cloudsync.Progress) *syncProgressJSON {
	if a != ledger.SyncInProgress {
		return nil
	}
	return &syncProgressJSON{p.Values, p.TotalValues, p.Bytes, p.TotalBytes}
}

// syncErrorText is why a page is not in step, "" when nothing is wrong.
func syncErrorText(s ledger.SyncState) string {
	for _, err := range []error{s.UploadErr, s.DownloadErr} {
		if err != nil {
			return err.Error()
		}
	}
	return ""
}

func newSyncStateJSON(s ledger.SyncState) *syncStateJSON {
	return &syncStateJSON{
		s.Upload.String(), s.Download.String(), s.Position, timeOrNone(s.OldestUnsynced), timeOrNone(s.LastSuccess), timeOrNone(s.ServerTime), s.Paused, syncErrorText(s),
		newSyncProgressJSON(s.Upload, s.Up), newSyncProgressJSON(s.Download, s.Down),
	}
}

// syncProgress prints how far one direction is, if it is under way.
func (a *app) syncProgress(where string, activity cloudsync.Activity, p cloudsync.Progress) {
	if activity == ledger.SyncInProgress {
		a.printf("  %-9s %d of %s, %s of %s\n", where, p.Values, countText(int(p.TotalValues), "value"), sizeText(p.Bytes), sizeText(p.TotalBytes))
	}
}

// syncState prints the state of sync of a page.
func (a *app) syncState(s ledger.SyncState) {
	a.printf("  sync      upload %s, download %s, entry %d, last %s\n", s.Upload, s.Download, s.Position, a.agoText(s.LastSuccess))
	a.syncProgress("up", s.Upload, s.Up)
	a.syncProgress("down", s.Download, s.Down)
	if !s.ServerTime.IsZero() {
		a.printf("  received  newest entry of others written %s\n", a.agoText(s.ServerTime))
	}
	if !s.OldestUnsynced.IsZero() {
		a.printf("  oldest    unsynced since %s\n", a.agoText(s.OldestUnsynced))
	}
	if text := syncErrorText(s); text != "" {
		a.printf("  problem   %s\n", printable(fmt.Sprintf("the last sync: %s", text)))
	}
}
