package ledger_test

import (
	"bytes"
	"testing"

	"github.com/ledgerd/ledger"
)

// TestIterValues reads values of every length with Value, those of at most 256 bytes with
// InlineValue too, from a snapshot and from a transaction that has changes of its own.
func TestIterValues(t *testing.T) {
	ctx := t.Context()
	p := memoryPage(t, ledger.Options{})
	want := map[string]string{"a": "", "b": "short", "c": string(pseudo(1, 256)), "d": string(pseudo(2, 257)), "e": string(pseudo(3, 3<<20))}
	for k, v := range want {
		put(t, p, k, v)
	}
	check := func(it *ledger.Iter) {
		t.Helper()
		_, err := it.Value(ctx)
		wantErr(t, err, ledger.ErrInvalid)
		n := 0
		for it.Next(ctx) {
			v, err := it.Value(ctx)
			must(t, err)
			expected := want[string(it.Key())]
			if v == nil || string(v) != expected {
				t.Errorf("%q has %d bytes, want %d", it.Key(), len(v), len(expected))
			}
			inline, ok := it.InlineValue()
			if ok != (len(expected) <= 256) || ok && !bytes.Equal(inline, v) || !ok && inline != nil {
				t.Errorf("%q of %d bytes: inline %t, %d bytes", it.Key(), len(expected), ok, len(inline))
			}
			n++
		}
		must(t, it.Err())
		if n != len(want) {
			t.Errorf("%d entries, want %d", n, len(want))
		}
		_, err = it.Value(ctx)
		wantErr(t, err, ledger.ErrInvalid)
	}
	must(t, p.View(ctx, func(s *ledger.Snapshot) error {
		check(s.Iter(ledger.ScanOptions{}))
		check(s.Iter(ledger.ScanOptions{KeysOnly: true, Reverse: true}))
		return nil
	}))
	update(t, p, func(tx *ledger.Tx) error {
		want["b"], want["f"] = "changed", string(pseudo(4, 70_000))
		must(t, tx.Put(ctx, []byte("b"), []byte(want["b"])))
		must(t, tx.Put(ctx, []byte("f"), []byte(want["f"])))
		check(tx.Iter(ledger.ScanOptions{}))
		return nil
	})
	s, err := p.Snapshot(ctx)
	must(t, err)
	it := s.Iter(ledger.ScanOptions{Start: []byte("e")})
	if !it.Next(ctx) {
		t.Fatal(it.Err())
	}
	must(t, s.Close())
	_, err = it.Value(ctx)
	wantErr(t, err, ledger.ErrClosed)
}
