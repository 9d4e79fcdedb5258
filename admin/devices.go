package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/bridge"
)

// DeviceInfo is a device that has uploaded commits.
type DeviceInfo struct {
	// ID is derived from the device's signing key, 32 hexadecimal digits.
	ID string
	// Name is the name in the commits that the device uploaded last, "" for none. It is not
	// verified.
	Name string
	// Last is about when the device last uploaded commits.
	Last time.Time
	// Own reports that it is this device.
	Own bool
}

// Devices lists the devices that have uploaded commits, as recorded in the pages of this device,
// sorted by id. It makes no request. Unreadable pages are left out, and reported by an error beside
// the list. Other errors: ErrClosed, those of ctx.
func Devices(ctx context.Context, repo *ledger.Repository) ([]DeviceInfo, error) {
	r, known := of(repo), map[string]DeviceInfo{}
	cloud, _ := repo.Cloud()
	err := r.Call(ctx, "list devices", func(ctx context.Context) error {
		return r.visitAll(ctx, nil, func(ctx context.Context, p *bridge.Page) error {
			devices, err := cloudsync.DevicesOf(ctx, p.Store)
			for id, k := range devices {
				d := DeviceInfo{ID: id.String(), Name: k.Name, Last: time.Unix(0, int64(k.Last)).UTC(), Own: id.String() == cloud.Device}
				if old, ok := known[d.ID]; !ok || old.Last.Before(d.Last) {
					d.Name = cmp.Or(d.Name, old.Name)
					known[d.ID] = d
				}
			}
			return err
		})
	})
	return slices.SortedFunc(maps.Values(known), func(a, b DeviceInfo) int { return strings.Compare(a.ID, b.ID) }), err
}

// Sender is the device that uploaded a commit to the log in the bucket.
type Sender struct {
	// Device is the id of the device, as in CloudInfo.Device: 32 hexadecimal digits, "" when
	// unknown, for example for a commit that is not synced.
	Device string
	// Verified reports that this device has read the log entry with the commit, signed by the
	// sender. Otherwise the information is from the checkpoint with which this device began, as its
	// maker stated.
	Verified bool
}

// SenderOf returns the device that uploaded a commit. It is the device that made the commit, unless
// the bucket had lost the commit and another device uploaded it again. Errors: ErrNotFound,
// ErrClosed, ErrCorrupt.
func SenderOf(ctx context.Context, page *ledger.Page, id ledger.CommitID) (out Sender, err error) {
	p := bridge.OfPage(page)
	var s cloudsync.Sender
	if _, err = p.Session.Commit(ctx, id); err == nil {
		err = p.Session.Call(ctx, func(ctx context.Context) error {
			s, err = cloudsync.SenderOf(ctx, p.Store, id)
			p.Note(err)
			return err
		})
	}
	if err != nil {
		return out, fmt.Errorf("read who sent a commit: %w", err)
	}
	if s.Device != (seal.ID{}) {
		out = Sender{Device: s.Device.String(), Verified: s.Verified}
	}
	return out, nil
}
