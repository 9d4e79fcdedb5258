package cloudlink

import (
	"context"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

// closing is a bucket that counts how often it is closed.
type closing struct {
	bucket.Bucket
	closed int
}

func (c *closing) Close() error {
	c.closed++
	return nil
}

// TestLateBucketThatIsClosedMeanwhile closes a bucket while its first request opens it.
func TestLateBucketThatIsClosedMeanwhile(t *testing.T) {
	b := &closing{Bucket: mem.New(mem.Options{})}
	var l *lateBucket
	l = newLateBucket("mem:late", func(context.Context) (bucket.Bucket, error) { return b, l.Close() })
	for range 2 {
		if _, err := l.List(t.Context(), "", "", 1); !errors.Is(err, base.ErrClosed) {
			t.Errorf("list: %v", err)
		}
	}
	if err := l.Close(); err != nil || b.closed != 1 {
		t.Errorf("closed %d times: %v", b.closed, err)
	}
}
