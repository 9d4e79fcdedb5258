package leak_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/leak"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// listing is a bucket of which only the list is read.
type listing struct {
	bucket.Bucket
	infos []bucket.Info
}

// List implements bucket.Bucket.
func (l listing) List(_ context.Context, after, _ string, limit int) ([]bucket.Info, error) {
	var some []bucket.Info
	for _, i := range l.infos {
		if i.Name > after && len(some) < limit {
			some = append(some, i)
		}
	}
	return some, nil
}

func TestLook(t *testing.T) {
	start := time.Date(2026, 3, 1, 22, 30, 0, 0, time.UTC)
	l := listing{Bucket: mem.New(mem.Options{})}
	put := func(name string, size int64, hours int) {
		l.infos = append(l.infos, bucket.Info{Name: name, Size: size, Created: start.Add(time.Duration(hours) * time.Hour)})
	}
	names, e, id := wire.Names{Dir: "la/pa"}, epoch.ID{1}, epoch.ID{0xaa}
	put("keys/00000000", 232, 0)
	put("pages/0123", 512, 0)
	put("pages/0124", 511, 0)
	put(names.Epoch(0), 512, 0)
	put(names.Epoch(1), 512, 1)
	put(names.Epoch(2), 513, 1)
	for n := range uint64(2500) { // more than one list
		put(names.Entry(e, n+1), 512, int(n))
	}
	put(names.Entry(epoch.ID{2}, 2501), 512, 0)  // a long body
	put(names.Entry(epoch.ID{2}, 2502), 1024, 0) // a closing entry
	put(names.Pack(e, id), seal.ObjectBytes(seal.Padme(1_000_000)), 0)
	put(names.Pack(epoch.ID{2}, id), seal.ObjectBytes(seal.Padme(1_000_000)+1), 0)
	put(names.Checkpoint(e, id), seal.ObjectBytes(seal.Padme(1000)), 0)
	put("la/pa/devices/d1/00000000000000000001", 513, 0) // of nobody
	put(wire.Names{Dir: "la/pb"}.Entry(e, 7), 513, 5)
	put(wire.Names{Dir: "lb/pc"}.Checkpoint(e, id), 1001, 5)
	slices.SortFunc(l.infos, func(a, b bucket.Info) int { return strings.Compare(a.Name, b.Name) })
	r, err := leak.Look(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if r.Ledgers != 2 || len(r.Pages) != 3 || r.Objects != len(l.infos) {
		t.Errorf("%d ledgers, %d pages, %d objects", r.Ledgers, len(r.Pages), r.Objects)
	}
	want := []string{names.Epoch(2), names.Pack(epoch.ID{2}, id), wire.Names{Dir: "la/pb"}.Entry(e, 7), wire.Names{Dir: "lb/pc"}.Checkpoint(e, id), "pages/0124"}
	if !slices.Equal(r.Odd, want) || r.MoreOdd != 0 {
		t.Errorf("odd: %v and %d, want %v", r.Odd, r.MoreOdd, want)
	}
	p := r.Pages[0]
	if p.Name != "la/pa" || p.Objects != 2508 || p.Entries != 2502 || p.Packs != 2 || p.Epochs != 3 || p.Checkpoints != 1 || p.Lengths != 6 {
		t.Errorf("%+v", p)
	}
	if p.Days != 106 || !p.First.Equal(start) || !p.Last.Equal(start.Add(2499*time.Hour)) || p.Hours[0] != 105 {
		t.Errorf("%+v", p)
	}
}

// again is a bucket that lists the same names in answer to each request, three times.
type again struct {
	bucket.Bucket
	left *int
}

var errEnough = errors.New("asked too often")

// List implements bucket.Bucket.
func (a again) List(_ context.Context, _, _ string, limit int) (some []bucket.Info, _ error) {
	if *a.left--; *a.left < 0 {
		return nil, errEnough
	}
	for i := range limit {
		some = append(some, bucket.Info{Name: fmt.Sprintf("pages/%040d", i), Size: 512})
	}
	return some, nil
}

// TestListThatDoesNotAdvance: a bucket cannot keep who looks at it.
func TestListThatDoesNotAdvance(t *testing.T) {
	left := 3
	if _, err := leak.Look(t.Context(), again{mem.New(mem.Options{}), &left}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("%v, and %d requests are left", err, left)
	}
}
