package leak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

// Report is what the owner of a bucket can tell.
type Report struct {
	// Ledgers is the number of ledgers that have pages in the bucket.
	Ledgers int
	// Objects and Bytes are all objects of the bucket.
	Objects int
	Bytes   int64
	// Pages are the pages, in order of their names in the bucket, which are keyed hashes.
	Pages []Page
	// Odd are the names of objects whose lengths are not padded: a program of another version wrote
	// them, or their end is missing. There are at most 100 of them; MoreOdd is how many more there
	// are.
	Odd     []string
	MoreOdd int
}

// Page is what the owner can tell of one page.
type Page struct {
	// Name is the directory of the page's objects.
	Name string
	// Objects and Bytes are its objects.
	Objects int
	Bytes   int64
	// Entries is how many entries its log has had, by the greatest number. Each is a write by some
	// device.
	Entries uint64
	// Packs are the objects with contents of values, or large differences; Checkpoints those with
	// all of a page.
	Packs, Checkpoints int
	// Devices is how many devices have left a note.
	Devices int
	// Lengths is how many different lengths the objects have.
	Lengths int
	// First and Last are when its oldest and newest objects were written, and Days on how many days
	// (UTC) something was. They are zero where the bucket tells no times.
	First, Last time.Time
	Days        int
	// Hours is how many objects were written in each hour of the day (UTC).
	Hours [24]int
}

// maxOdd bounds Report.Odd.
const maxOdd = 100

// Look lists a bucket and returns what its owner can tell. It takes a request for each thousand
// objects. Errors are those of the bucket.
func Look(ctx context.Context, b bucket.Bucket) (*Report, error) {
	r := &Report{}
	pages := map[string]*sight{}
	ledgers := map[string]bool{}
	for after := ""; ; {
		infos, err := b.List(ctx, after, "", bucket.MaxList)
		if err != nil {
			return nil, fmt.Errorf("list the bucket: %w", err)
		}
		for _, info := range infos {
			r.Objects, r.Bytes = r.Objects+1, r.Bytes+info.Size
			ledger, page, kind, rest := cut(info.Name)
			if !padded(kind, rest, info.Size) {
				if len(r.Odd) < maxOdd {
					r.Odd = append(r.Odd, info.Name)
				} else {
					r.MoreOdd++
				}
			}
			if page == "" {
				continue
			}
			ledgers[ledger] = true
			s := pages[ledger+"/"+page]
			if s == nil {
				s = &sight{Page: Page{Name: ledger + "/" + page}, lengths: map[int64]bool{}, days: map[time.Time]bool{}, devices: map[string]bool{}}
				pages[s.Name] = s
			}
			s.add(&info, kind, rest)
		}
		if len(infos) < bucket.MaxList {
			break
		}
		after = infos[len(infos)-1].Name
	}
	r.Ledgers = len(ledgers)
	for _, s := range pages {
		s.Lengths, s.Days, s.Devices = len(s.lengths), len(s.days), len(s.devices)
		r.Pages = append(r.Pages, s.Page)
	}
	slices.SortFunc(r.Pages, func(a, b Page) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// cut returns the parts of a name: of a page's object its ledger, page and kind, of others the kind
// alone.
func cut(name string) (ledger, page, kind, rest string) {
	parts := strings.SplitN(name, "/", 4)
	if len(parts) == 4 {
		return parts[0], parts[1], parts[2], parts[3]
	}
	return "", "", parts[0], ""
}

// padded reports whether an object can have its length. Ranges are not sealed; of keyrings the
// length is known.
func padded(kind, rest string, size int64) bool {
	switch kind {
	case "packs", "checkpoints":
		plain := seal.StreamBytes(size)
		return plain > 0 && seal.Padme(plain) == plain
	case "log":
		return strings.Contains(rest, "-") || size == 0 || seal.Quarters(int(size)) == int(size)
	case "floor", "devices", "pages":
		return seal.Quarters(int(size)) == int(size)
	}
	return true
}

// sight is a page that is looked at.
type sight struct {
	Page
	lengths map[int64]bool
	days    map[time.Time]bool
	devices map[string]bool
}

func (s *sight) add(info *bucket.Info, kind, rest string) {
	s.Objects, s.Bytes = s.Objects+1, s.Bytes+info.Size
	s.lengths[info.Size] = true
	switch kind {
	case "packs":
		s.Packs++
	case "checkpoints":
		s.Checkpoints++
	case "devices":
		device, _, _ := strings.Cut(rest, "/")
		s.devices[device] = true
	case "log":
		last := rest[strings.LastIndexByte(rest, '-')+1:]
		var n uint64
		if _, err := fmt.Sscan(strings.TrimLeft(last, "0"), &n); err == nil {
			s.Entries = max(s.Entries, n)
		}
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
