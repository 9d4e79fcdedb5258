package merge_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

func TestStore(t *testing.T) {
	page := newTestPage()
	p := merge.NewPair(page.env(), commit.First(), commit.First(), commit.First())
	for _, n := range []int{0, 1, btree.InlineLimit, btree.InlineLimit + 1, 100_000, 3_000_000} {
		value := varied(n)
		for _, priority := range []object.Priority{object.Eager, object.Lazy} {
			e, err := p.Store(t.Context(), value, priority)
			if err != nil {
				t.Fatal(err)
			}
			read, err := p.StoreReader(t.Context(), iotest.HalfReader(bytes.NewReader(value)), priority)
			if err != nil {
				t.Fatal(err)
			}
			if e.Digest != read.Digest || e.Size != read.Size || !btree.EqualValues(&e, &read) {
				t.Errorf("%d bytes: Store and StoreReader differ", n)
			}
			inline := n <= btree.InlineLimit
			if e.Inline != inline || e.Size != uint64(n) || inline && e.Priority != object.Eager || !inline && e.Priority != priority {
				t.Errorf("%d bytes with %s: inline %t, size %d, %s", n, priority, e.Inline, e.Size, e.Priority)
			}
			got, err := p.Value(t.Context(), &e, int64(n))
			if err != nil || !bytes.Equal(got, value) {
				t.Errorf("%d bytes: another value: %v", n, err)
			}
			if all, err := io.ReadAll(p.Open(t.Context(), &e)); err != nil || !bytes.Equal(all, value) {
				t.Errorf("%d bytes: another value from Open: %v", n, err)
			}
			if _, err := p.Value(t.Context(), &e, int64(n)-1); !errors.Is(err, base.ErrTooLarge) {
				t.Errorf("%d bytes with a smaller limit: %v", n, err)
			}
		}
	}
}

// The last chunk of a long value may be as short as an inline value.
func TestStoreReaderKeepsAShortLastChunk(t *testing.T) {
	p := merge.NewPair(newTestPage().env(), commit.First(), commit.First(), commit.First())
	value := make([]byte, 1<<16+10) // equal bytes are cut at 64 KiB
	e, err := p.StoreReader(t.Context(), bytes.NewReader(value), object.Eager)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Value(t.Context(), &e, int64(len(value))); err != nil || !bytes.Equal(got, value) {
		t.Errorf("got %d bytes of %d: %v", len(got), len(value), err)
	}
}

// noProgress gives nothing, again and again; liar says that it read more than there is room for.
type noProgress struct{}

func (noProgress) Read([]byte) (int, error) { return 0, nil }

type liar struct{}

func (liar) Read(b []byte) (int, error) { return len(b) + 1, nil }

func TestStoreErrors(t *testing.T) {
	page := newTestPage()
	p := merge.NewPair(page.env(), commit.First(), commit.First(), commit.First())
	errRead := errors.New("reader is tired")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx      context.Context
		r        io.Reader
		priority object.Priority
		want     error
	}{
		"reader fails":       {t.Context(), iotest.ErrReader(errRead), object.Eager, errRead},
		"reader fails later": {t.Context(), io.MultiReader(bytes.NewReader(varied(9000)), iotest.ErrReader(errRead)), object.Eager, errRead},
		"no progress":        {t.Context(), noProgress{}, object.Eager, io.ErrNoProgress},
		"liar":               {t.Context(), liar{}, object.Eager, base.ErrInvalid},
		"priority":           {t.Context(), bytes.NewReader(nil), 2, base.ErrInvalid},
		"canceled":           {canceled, bytes.NewReader(nil), object.Eager, context.Canceled},
	} {
		if _, err := p.StoreReader(c.ctx, c.r, c.priority); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := p.Store(canceled, nil, object.Eager); !errors.Is(err, context.Canceled) {
		t.Errorf("Store, canceled: %v", err)
	}
	if _, err := p.Store(t.Context(), nil, 2); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("Store with a wrong priority: %v", err)
	}
	huge := &fb.Entry{Size: 1 << 63}
	if _, err := p.Value(t.Context(), huge, 1<<62); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("Value of 2^63 bytes: %v", err)
	}
	if err := p.Report(t.Context(), &merge.Conflict{Outcome: merge.TakeLeft, Rule: "r"}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("Report outside of an owner: %v", err)
	}
}

// Without a merge around it, a pair shows all changes below a prefix.
func TestChangesOfPair(t *testing.T) {
	page, l, r := ownedPage(t)
	p := merge.NewPair(page.env(), l, r, page.commits[l.Parents[0]])
	for prefix, want := range map[string]int{"": 9, "n/": 6, "n/m/": 3, "n/m/2": 1, "o": 0} {
		n := 0
		for c, err := range p.Changes(t.Context(), []byte(prefix)) {
			if err != nil || !bytes.HasPrefix(c.Key, []byte(prefix)) || c.Outcome != merge.Undecided {
				t.Fatalf("%q: %v, %v", prefix, c, err)
			}
			n++
		}
		if n != want {
			t.Errorf("%d changes below %q, want %d", n, prefix, want)
		}
	}
}
