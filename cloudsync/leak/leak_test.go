package leak_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/leak"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
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
	number := func(n int) string { return fmt.Sprintf("%020d", n) }
	put("format", 232, 0)
	put("pages/0123", 512, 0)
	for n := range 2500 { // more than one list
		put("la/pa/log/"+number(n+1), 512, n)
	}
	put("la/pa/log/"+number(1)+"-"+number(32), 12345, 0)
	put("la/pa/packs/aa", seal.ObjectBytes(seal.Padme(1_000_000)), 0)
	put("la/pa/packs/ab", seal.ObjectBytes(seal.Padme(1_000_000)+1), 0)
	put("la/pa/devices/d1/"+number(1), 512, 0)
	put("la/pa/devices/d1/"+number(2), 512, 0)
	put("la/pa/devices/d2/"+number(2), 512, 0)
	put("la/pb/log/"+number(7), 513, 5)
	put("lb/pc/checkpoints/"+number(7), 1000, 5)
	slices.SortFunc(l.infos, func(a, b bucket.Info) int { return strings.Compare(a.Name, b.Name) })
	r, err := leak.Look(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if r.Ledgers != 2 || len(r.Pages) != 3 || r.Objects != len(l.infos) {
		t.Errorf("%d ledgers, %d pages, %d objects", r.Ledgers, len(r.Pages), r.Objects)
	}
	if want := []string{"la/pa/packs/ab", "la/pb/log/" + number(7), "lb/pc/checkpoints/" + number(7)}; !slices.Equal(r.Odd, want) || r.MoreOdd != 0 {
		t.Errorf("odd: %v and %d, want %v", r.Odd, r.MoreOdd, want)
	}
	p := r.Pages[0]
	if p.Name != "la/pa" || p.Entries != 2500 || p.Packs != 2 || p.Devices != 2 || p.Lengths != 4 || p.Days != 106 || !p.First.Equal(start) || !p.Last.Equal(start.Add(2499*time.Hour)) || p.Hours[0] != 105 {
		t.Errorf("%+v", p)
	}
}
