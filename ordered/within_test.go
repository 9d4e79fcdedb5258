package ordered_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWithin: rows below a prefix are a store of their own, and others are not touched.
func TestWithin(t *testing.T) {
	ctx := t.Context()
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 0, 3)
	rapid.Check(t, func(rt *rapid.T) {
		prefix := key.Draw(rt, "prefix")
		plain, around := ordered.NewMemory(), ordered.NewMemory()
		outside := map[string]bool{}
		for _, k := range rapid.SliceOfN(key, 0, 5).Draw(rt, "outside") {
			if !bytes.HasPrefix(k, prefix) {
				outside[string(k)] = true
				check(rt, around.Put(ctx, k, k))
			}
		}
		within := ordered.Within(around, prefix)
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			k, v := key.Draw(rt, "key"), key.Draw(rt, "value")
			var from, to []byte
			if rapid.Bool().Draw(rt, "bounds") {
				from, to = key.Draw(rt, "from"), key.Draw(rt, "to")
			}
			op := rapid.IntRange(0, 3).Draw(rt, "op")
			for _, w := range []ordered.Writer{plain, within} {
				switch op {
				case 0:
					check(rt, w.Delete(ctx, k))
				case 1:
					check(rt, w.DeleteRange(ctx, from, to))
				case 2:
					check(rt, w.PutReader(ctx, k, bytes.NewReader(v), -1))
				default:
					check(rt, w.Put(ctx, k, v))
				}
			}
			for _, reverse := range []bool{false, true} {
				rg := ordered.Range{Start: from, End: to, Reverse: reverse}
				if a, b := all(ctx, rt, plain, rg), all(ctx, rt, within, rg); !slices.Equal(a, b) {
					rt.Fatalf("%+v: %q, within %q", rg, a, b)
				}
			}
			nextA, errA := plain.Seek(ctx, k)
			nextB, errB := within.Seek(ctx, k)
			if !bytes.Equal(nextA, nextB) || errors.Is(errA, base.ErrNotFound) != errors.Is(errB, base.ErrNotFound) || (errA == nil) != (errB == nil) {
				rt.Fatalf("from %q on: %q, %v; within %q, %v", k, nextA, errA, nextB, errB)
			}
			a, errA := plain.Get(ctx, k)
			b, errB := within.Get(ctx, k)
			o, errO := ordered.ReaderWithin(around, prefix).Open(ctx, k)
			if !bytes.Equal(a, b) || errors.Is(errA, base.ErrNotFound) != errors.Is(errB, base.ErrNotFound) || (errA == nil) != (errO == nil) {
				rt.Fatalf("%q: %q, %v; within %q, %v, %v", k, a, errA, b, errB, errO)
			}
			if errO == nil {
				if c, err := io.ReadAll(o); err != nil || !bytes.Equal(c, a) {
					rt.Fatalf("%q: opened %q, %v", k, c, err)
				}
			}
		}
		for k := range outside {
			if v, err := around.Get(ctx, []byte(k)); err != nil || string(v) != k {
				rt.Fatalf("row %q outside is %q, %v", k, v, err)
			}
		}
	})
}

func check(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func all(ctx context.Context, t *rapid.T, r ordered.Reader, rg ordered.Range) (rows []string) {
	for row, err := range ordered.Rows(ctx, r, rg) {
		check(t, err)
		rows = append(rows, string(row.Key)+"="+string(row.Value))
	}
	return rows
}
