package bucket_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

func TestPrefix(t *testing.T) {
	for path, want := range map[string]bucket.Prefix{"": "", "/": "", "a": "a/", "a/b/": "a/b/"} {
		if got, err := bucket.ParsePrefix(path); got != want || err != nil {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"a//b", "a//", "../a", "A", "a b"} {
		if got, err := bucket.ParsePrefix(path); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	long := strings.Repeat("n", bucket.MaxNameBytes-1)
	if err := bucket.Prefix("a/").Check(bucket.OpGet, long, false, nil); bucket.ClassOf(err) != bucket.ClassInvalid {
		t.Errorf("too long: %v", err)
	}
	if err := bucket.Prefix("").Check(bucket.OpGet, long, false, nil); err != nil {
		t.Error(err)
	}
	if err := bucket.Prefix("").Check(bucket.OpList, "", true, nil); !errors.Is(err, base.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestListing(t *testing.T) {
	l := bucket.Prefix("p/").Listing("b", "")
	for _, key := range []string{"o/c", "p/a", "p/b", "p/C", "p/c", "p/c//d", "p/d"} {
		ours, err := l.Add(key, 1, time.Time{})
		if want := key == "p/c" || key == "p/d"; ours != want || err != nil {
			t.Errorf("%s: %v, %v", key, ours, err)
		}
	}
	want := []bucket.Info{{Name: "c", Size: 1}, {Name: "d", Size: 1}}
	if !slices.Equal(l.Infos, want) {
		t.Errorf("listed %v", l.Infos)
	}
	for _, key := range []string{"p/d", "p/c"} {
		if _, err := l.Add(key, 1, time.Time{}); bucket.ClassOf(err) != bucket.ClassCorrupt {
			t.Errorf("%s after d: %v", key, err)
		}
	}
}

func TestUpload(t *testing.T) {
	for content, want := range map[string]error{"abc": nil, "ab": base.ErrInvalid, "abcd": base.ErrInvalid} {
		u := bucket.NewUpload(t.Context(), strings.NewReader(content), 3)
		_, err := io.ReadAll(u)
		if !errors.Is(err, want) || !errors.Is(u.Err(), want) || u.Whole() != (want == nil) {
			t.Errorf("%s: %v, %v, %v", content, err, u.Err(), u.Whole())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u := bucket.NewUpload(ctx, strings.NewReader("a"), 1)
	if _, err := u.Read(make([]byte, 1)); err != context.Canceled || u.Err() != err || u.Whole() {
		t.Errorf("after the end of the context: %v, %v", err, u.Err())
	}
}

func TestBody(t *testing.T) {
	failed := errors.New("mapped")
	var cause error
	mapped := func(err error) error { cause = err; return failed }
	for content, want := range map[string]string{"abc": "abc", "abcd": "abc", "ab": "ab"} {
		b := bucket.NewBody(io.NopCloser(strings.NewReader(content)), 3, mapped)
		got, err := io.ReadAll(b)
		if short := len(content) < 3; string(got) != want || (err == failed) != short || short && cause != io.ErrUnexpectedEOF {
			t.Errorf("%s: %q, %v of %v", content, got, err, cause)
		}
	}
}

func TestClientError(t *testing.T) {
	for err, want := range map[error]bucket.Class{
		errors.New("no JSON"): bucket.ClassCorrupt, io.ErrUnexpectedEOF: bucket.ClassRetryable, base.ErrInvalid: bucket.ClassInvalid,
	} {
		if got := bucket.NewClientError(t.Context(), bucket.OpPut, "a", err); bucket.ClassOf(got) != want || !bucket.Ambiguous(got) {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
}
