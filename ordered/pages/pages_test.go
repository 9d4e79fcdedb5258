package pages_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/ordered/pages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStoresAgree does the same with a page, with rows in memory, and with a sorted list, and
// compares all that can be read after each step.
func TestStoresAgree(t *testing.T) {
	page := ledgertest.Page(t, ledgertest.Open(t), "layers", "rows")
	rapid.Check(t, func(rt *rapid.T) {
		if _, err := page.Update(t.Context(), func(tx *ledger.Tx) error { return agree(t.Context(), rt, tx) }); err != nil {
			rt.Fatal(err)
		}
	})
}

func agree(ctx context.Context, rt *rapid.T, tx *ledger.Tx) error {
	if err := tx.DeleteRange(ctx, nil, nil); err != nil {
		return err
	}
	stores := []ordered.Writer{pages.Writer(tx, ledger.Eager), ordered.NewMemory()}
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 0, 3)
	value := rapid.SliceOfN(rapid.Byte(), 0, 600)
	bound := func(name string) []byte {
		if rapid.Bool().Draw(rt, name+" set") {
			return key.Draw(rt, name)
		}
		return nil
	}
	for range rapid.IntRange(1, 12).Draw(rt, "steps") {
		k, v := key.Draw(rt, "key"), value.Draw(rt, "value")
		from, to := bound("from"), bound("to")
		op := rapid.IntRange(0, 4).Draw(rt, "op")
		for _, s := range stores {
			if err := step(ctx, s, op, k, v, from, to); err != nil {
				return err
			}
		}
		for _, reverse := range []bool{false, true} {
			r := ordered.Range{Start: from, End: to, Reverse: reverse}
			a, b := rows(ctx, rt, stores[0], r), rows(ctx, rt, stores[1], r)
			if !slices.EqualFunc(a, b, func(x, y ordered.Row) bool {
				return bytes.Equal(x.Key, y.Key) && bytes.Equal(x.Value, y.Value)
			}) {
				rt.Fatalf("%+v: the page has %q, memory %q", r, a, b)
			}
		}
		compareOne(ctx, rt, stores, k)
	}
	return nil
}

func step(ctx context.Context, s ordered.Writer, op int, k, v, from, to []byte) error {
	switch op {
	case 0:
		return s.Delete(ctx, k)
	case 1:
		return s.DeleteRange(ctx, from, to)
	case 2:
		return s.PutReader(ctx, k, bytes.NewReader(v), -1)
	}
	return s.Put(ctx, k, v)
}

func rows(ctx context.Context, rt *rapid.T, r ordered.Reader, rg ordered.Range) (all []ordered.Row) {
	for row, err := range ordered.Rows(ctx, r, rg) {
		if err != nil {
			rt.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

func compareOne(ctx context.Context, rt *rapid.T, stores []ordered.Writer, k []byte) {
	var got, sought [2][]byte
	for i, s := range stores {
		v, err := s.Get(ctx, k)
		found, seekErr := s.Seek(ctx, k)
		if seekErr != nil && !errors.Is(seekErr, ledger.ErrNotFound) {
			rt.Fatal(seekErr)
		}
		sought[i] = found
		o, openErr := s.Open(ctx, k)
		if errors.Is(err, ledger.ErrNotFound) && errors.Is(openErr, ledger.ErrNotFound) {
			continue
		}
		if err != nil || openErr != nil {
			rt.Fatalf("get: %v, open: %v", err, openErr)
		}
		streamed, err := io.ReadAll(o)
		if err != nil || !bytes.Equal(streamed, v) || o.Size() != int64(len(v)) {
			rt.Fatalf("open gives %q of %d bytes, get %q, error %v", streamed, o.Size(), v, err)
		}
		if err := o.Close(); err != nil {
			rt.Fatal(err)
		}
		got[i] = v
	}
	if !bytes.Equal(sought[0], sought[1]) || (sought[0] == nil) != (sought[1] == nil) {
		rt.Fatalf("from %q on the page has %q, memory %q", k, sought[0], sought[1])
	}
	if (got[0] == nil) != (got[1] == nil) || !bytes.Equal(got[0], got[1]) {
		rt.Fatalf("the page has %q under %q, memory %q", got[0], k, got[1])
	}
}

// TestSizeThatDiffers: neither store takes a value of another length than was said.
func TestSizeThatDiffers(t *testing.T) {
	page := ledgertest.Page(t, ledgertest.Open(t), "layers", "rows")
	_, err := page.Update(t.Context(), func(tx *ledger.Tx) error {
		for _, s := range []ordered.Writer{pages.Writer(tx, ledger.Eager), ordered.NewMemory()} {
			if err := s.PutReader(t.Context(), []byte("k"), bytes.NewReader([]byte("abc")), 2); !errors.Is(err, ledger.ErrInvalid) {
				t.Errorf("%T: %v", s, err)
			}
			if _, err := s.Get(t.Context(), []byte("k")); !errors.Is(err, ledger.ErrNotFound) {
				t.Errorf("%T: after a failed put: %v", s, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
