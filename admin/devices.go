package admin

import (
	"cmp"
	"context"
	"errors"
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

// DeviceInfo is a device that has put commits into the cloud.
type DeviceInfo struct {
	// ID follows from the key with which the device signs, 32 hexadecimal digits.
	ID string
	// Name is what the device called itself in the last commits that it has put there, "" for
	// nothing: a claim.
	Name string
	// Last is about when it did so last.
	Last time.Time
	// Own says that it is this device.
	Own bool
}

// Devices lists the devices that have put commits into the cloud, as far as the pages that are here
// know of them, sorted by id. It asks the cloud for nothing. Pages that cannot be read are left
// out: then there is an error beside the list. Other errors: ErrClosed, those of ctx.
func Devices(ctx context.Context, repo *ledger.Repository) ([]DeviceInfo, error) {
	pages, err := herePages(ctx, repo)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	cloud, _ := repo.Cloud()
	known := map[string]DeviceInfo{}
	var bad []error
	for _, info := range pages {
		err := bridge.Of(repo).Visit(ctx, keyOf(info.PageRef), func(ctx context.Context, p *bridge.Page) error {
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
		if ctx.Err() != nil {
			return nil, fmt.Errorf("list devices: %w", context.Cause(ctx))
		}
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			bad = append(bad, fmt.Errorf("list devices: %w", err))
		}
	}
	return slices.SortedFunc(maps.Values(known), func(a, b DeviceInfo) int { return strings.Compare(a.ID, b.ID) }), errors.Join(bad...)
}

// Sender is the device that put a commit into the log of the cloud.
type Sender struct {
	// Device is the id of the device, as CloudInfo.Device has it: 32 hexadecimal digits, "" where
	// nobody knows, as of a commit that is not synced.
	Device string
	// Verified says that this device has read the entry of the log with the commit, which the other
	// one has signed. Else the device says so that made the checkpoint with which this one began.
	Verified bool
}

// SenderOf returns who put a commit into the log of the cloud. That is the device that made it,
// unless another one has sent it again, where a bucket had lost it. Errors: ErrNotFound, ErrClosed,
// ErrCorrupt.
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
