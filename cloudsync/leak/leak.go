package leak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// Report is what the owner of a bucket can learn.
type Report struct {
	// Ledgers is the number of ledgers that have pages in the bucket.
	Ledgers int
	// Objects and Bytes count all objects of the bucket.
	Objects int
	Bytes   int64
	// Pages are the pages, in order of their names in the bucket, which are keyed hashes.
	Pages []Page
	// Odd are the names of objects whose lengths are not padded: a program of another version wrote
	// them, or their end is missing. There are at most 100; MoreOdd counts the others.
	Odd     []string
	MoreOdd int
}

// Page is what the owner can learn about one page.
type Page struct {
	// Name is the directory of the page's objects.
	Name string
	// Objects and Bytes count its objects.
	Objects int
	Bytes   int64
	// Entries is how many entries its log has had, by the greatest number. Each is a write by some
	// device.
	Entries uint64
	// Packs are the objects with contents of values, or with long differences and entries.
	// Checkpoints are the parts of checkpoints.
	Packs, Checkpoints int
	// Epochs is how many epochs the log has had. Each after the first is a cut, a renewal or the
	// deletion of the page by some device.
	Epochs int
	// Lengths is how many different lengths the objects have.
	Lengths int
	// First and Last are when its oldest and newest objects were written. Days is on how many days
	// (UTC) an object was written. They are zero if the bucket gives no times.
	First, Last time.Time
	Days        int
	// Hours is how many objects were written in each hour of the day (UTC).
	Hours [24]int
}

// maxOdd bounds Report.Odd.
const maxOdd = 100

// Look lists a bucket and returns what its owner can learn. It makes a request for each thousand
// objects. Errors are those of the bucket, and of bucket.Walk for one that does not list in order.
func Look(ctx context.Context, b bucket.Bucket) (*Report, error) {
	r := &Report{}
	pages := map[string]*sight{}
	ledgers := map[string]bool{}
	for after := ""; ; {
		infos, err := b.List(ctx, after, "", bucket.MaxList)
		if err != nil {
			return nil, fmt.Errorf("list the bucket: %w", err)
		}
		w := bucket.Walk{After: after} // for each request: the walk as a whole has no bound
		for _, info := range infos {
			if err := w.Next(info); err != nil {
				return nil, fmt.Errorf("list the bucket: %w", err)
			}
			r.Objects, r.Bytes = r.Objects+1, r.Bytes+info.Size
			dir, name := cut(info.Name)
			if !padded(info.Name, name.Kind, info.Size) {
				if len(r.Odd) < maxOdd {
					r.Odd = append(r.Odd, info.Name)
				} else {
					r.MoreOdd++
				}
			}
			if dir == "" {
				continue
			}
			ledger, _, _ := strings.Cut(dir, "/")
			ledgers[ledger] = true
			s := pages[dir]
			if s == nil {
				s = &sight{Page: Page{Name: dir}, lengths: map[int64]bool{}, days: map[time.Time]bool{}}
				pages[dir] = s
			}
			s.add(&info, name)
		}
		if len(infos) < bucket.MaxList {
			break
		}
		after = w.After
	}
	r.Ledgers = len(ledgers)
	for _, s := range pages {
		s.Lengths, s.Days = len(s.lengths), len(s.days)
		r.Pages = append(r.Pages, s.Page)
	}
	slices.SortFunc(r.Pages, func(a, b Page) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// cut returns the directory of the page of an object, and the parsed name; "" for an object of no
// page.
func cut(name string) (dir string, parsed wire.Name) {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 3 {
		return "", wire.Name{}
	}
	dir = parts[0] + "/" + parts[1]
	parsed, ok := wire.Names{Dir: dir}.Parse(name)
	if !ok {
		return "", wire.Name{}
	}
	return dir, parsed
}

// padded reports whether an object can have its length. An object of no page is an announcement, or
// of the keyring, whose length is known.
func padded(name string, kind wire.Kind, size int64) bool {
	quarters := seal.Quarters(int(size)) == int(size)
	switch kind {
	case wire.KindPack, wire.KindCheckpoint:
		plain := seal.StreamBytes(size)
		return plain > 0 && seal.Padme(plain) == plain
	case wire.KindEntry, wire.KindEpoch:
		return quarters
	}
	return !strings.HasPrefix(name, "pages/") || quarters
}

// sight is a page during Look.
type sight struct {
	Page
	lengths map[int64]bool
	days    map[time.Time]bool
}

func (s *sight) add(info *bucket.Info, name wire.Name) {
	s.Objects, s.Bytes = s.Objects+1, s.Bytes+info.Size
	s.lengths[info.Size] = true
	switch name.Kind {
	case wire.KindEpoch:
		s.Epochs++
	case wire.KindEntry:
		s.Entries = max(s.Entries, name.Number)
	case wire.KindPack:
		s.Packs++
	case wire.KindCheckpoint:
		s.Checkpoints++
	}
	at := info.Created.UTC()
	if info.Created.IsZero() {
		return
	}
	if s.First.IsZero() || at.Before(s.First) {
		s.First = at
	}
	if at.After(s.Last) {
		s.Last = at
	}
	s.days[at.Truncate(24*time.Hour)] = true
	s.Hours[at.Hour()]++
}
