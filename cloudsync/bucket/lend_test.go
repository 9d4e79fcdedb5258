package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

// borrower is a store that lets itself lend the content of puts.
type borrower struct {
	bucket.Bucket
	got  []byte
	lent bool
	read error // of the content, behind what was lent
	done func()
}

func (b *borrower) PutIfAbsent(_ context.Context, _ string, size int64, content io.Reader) error {
	exact := bucket.ReadExact(content, size)
	b.got, b.lent = nil, true
	for {
		p, done, ok := bucket.Lend(exact, 1000)
		if b.lent = b.lent && ok; !ok || len(p) == 0 {
			if ok {
				done()
			}
			break
		}
		if b.got = append(b.got, p...); b.done != nil {
			b.done()
		}
		b.done = done
	}
	rest, err := io.ReadAll(exact)
	b.got, b.read = append(b.got, rest...), err
	return err
}

func TestContentIsLentThroughAll(t *testing.T) {
	b := &borrower{Bucket: mem.New(mem.Options{})}
	meter := bucket.NewMeter(b)
	all := bucket.NewRetry(bucket.NewPatient(meter, clock.System, time.Hour), bucket.RetryOptions{})
	plain := bytes.Repeat([]byte("0123456789"), 333)
	c := bucket.NewContent(plain)
	if err := all.PutIfAbsent(t.Context(), "a", int64(len(plain)), c); err != nil || !bytes.Equal(b.got, plain) || !b.lent {
		t.Fatalf("%d bytes, lent %v: %v", len(b.got), b.lent, err)
	}
	if n := meter.Counts().Up; n != int64(len(plain)) {
		t.Errorf("%d bytes were counted", n)
	}
	if !c.IsLent() {
		t.Error("it does not count as lent before the last part is given back")
	}
	if b.done(); c.IsLent() {
		t.Error("it counts as lent for ever")
	}
	b.done = nil
	if err := meter.PutIfAbsent(t.Context(), "a", int64(len(plain)), bytes.NewReader(plain)); err != nil || !bytes.Equal(b.got, plain) || b.lent {
		t.Errorf("what cannot be lent: %d bytes, lent %v: %v", len(b.got), b.lent, err)
	}
	for _, size := range []int{len(plain) - 1, len(plain) + 1} {
		if err := meter.PutIfAbsent(t.Context(), "a", int64(size), bucket.NewContent(plain)); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%d bytes that are said to be %d: %v", len(plain), size, err)
		}
	}
}
