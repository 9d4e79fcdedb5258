package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMem() *mem.Bucket { return mem.New(mem.Options{Clock: mem.NewAutoClock(start)}) }

func put(b bucket.Bucket, name, content string) error {
	return b.PutIfAbsent(context.Background(), name, int64(len(content)), strings.NewReader(content))
}

func read(b bucket.Bucket, name string, off, n int64) (string, error) {
	o, err := b.Get(context.Background(), name, off, n)
	if err != nil {
		return "", err
	}
	got, err := io.ReadAll(o.Body)
	return string(got), errors.Join(err, o.Body.Close())
}

// legal is CheckName said another way, for the fuzzer.
func legal(name string) bool {
	if len(name) < 1 || len(name) > 1024 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789/._-") != "" {
		return false
	}
	for _, r := range []byte(name) {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789/._-", rune(r)) {
			return false
		}
	}
	padded := "/" + name + "/"
	return !strings.Contains(padded, "//") && !strings.Contains(padded, "/./") && !strings.Contains(padded, "/../")
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"", "a", "/", "a/b", "a//b", "..", "a/../b", "...", "a/.", "A", "\x00", "ä", "a/b/", strings.Repeat("a", 1024), strings.Repeat("a", 1025)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := bucket.CheckName(name)
		if (err == nil) != legal(name) {
			t.Fatalf("%q: %v", name, err)
		}
		if err != nil && !errors.Is(err, base.ErrInvalid) {
			t.Fatalf("%q: %v is not invalid", name, err)
		}
		if err == nil && bucket.CheckPrefix(name) != nil {
			t.Fatalf("%q is a name and no prefix", name)
		}
	})
}

func TestStatusTable(t *testing.T) {
	type row struct {
		class     bucket.Class
		ambiguous bool
	}
	const n = bucket.ClassNotFound
	trouble := [3]row{{bucket.ClassRetryable, false}, {bucket.ClassRetryable, true}, {bucket.ClassRetryable, true}}
	all := func(c bucket.Class) [3]row { return [3]row{{c, false}, {c, false}, {c, false}} }
	for status, want := range map[int][3]row{ // get, put, delete
		304: {{n, false}, {bucket.ClassRetryable, true}, {n, false}}, 410: {{n, false}, {bucket.ClassRetryable, true}, {n, false}},
		401: all(bucket.ClassDenied), 403: all(bucket.ClassDenied), 402: all(bucket.ClassQuota), 507: all(bucket.ClassQuota), 404: all(n),
		408: trouble, 499: trouble, 500: trouble, 502: trouble, 503: trouble, 504: trouble, 599: trouble,
		409: {{bucket.ClassBusy, false}, {bucket.ClassBusy, true}, {bucket.ClassBusy, true}},
		429: {{bucket.ClassBusy, false}, {bucket.ClassBusy, true}, {bucket.ClassBusy, true}},
		412: {{bucket.ClassBusy, false}, {bucket.ClassExists, false}, {bucket.ClassBusy, false}},
		400: all(bucket.ClassInvalid), 405: all(bucket.ClassInvalid), 413: all(bucket.ClassQuota), 416: all(bucket.ClassInvalid),
		501: all(bucket.ClassInvalid), 505: all(bucket.ClassInvalid),
		0:   {{bucket.ClassCorrupt, false}, {bucket.ClassCorrupt, true}, {bucket.ClassCorrupt, true}},
		200: {{bucket.ClassCorrupt, false}, {bucket.ClassCorrupt, true}, {bucket.ClassCorrupt, true}},
		302: {{bucket.ClassCorrupt, false}, {bucket.ClassCorrupt, true}, {bucket.ClassCorrupt, true}},
	} {
		for i, op := range []bucket.Op{bucket.OpGet, bucket.OpPut, bucket.OpDelete} {
			err := bucket.NewStatusError(op, "x", status, nil)
			if got := (row{err.Class, err.Ambiguous}); got != want[i] || bucket.Ambiguous(err) != want[i].ambiguous {
				t.Errorf("%s %d: %+v, want %+v", op, status, got, want[i])
			}
		}
		if c, a := bucket.StatusClass(bucket.OpList, status); c != want[0].class || a {
			t.Errorf("list %d: %s", status, c)
		}
	}
}

func TestErrorsMatchTheirSentinels(t *testing.T) {
	sentinels := []error{base.ErrNotFound, bucket.ErrExists, base.ErrNetwork, fs.ErrPermission, base.ErrNoSpace, base.ErrInvalid, base.ErrCorrupt}
	for class, want := range map[bucket.Class]error{
		bucket.ClassOther: nil, bucket.ClassNotFound: base.ErrNotFound, bucket.ClassExists: bucket.ErrExists, bucket.ClassBusy: base.ErrNetwork,
		bucket.ClassRetryable: base.ErrNetwork, bucket.ClassDenied: fs.ErrPermission,
		bucket.ClassQuota: base.ErrNoSpace, bucket.ClassInvalid: base.ErrInvalid, bucket.ClassCorrupt: base.ErrCorrupt, bucket.ClassCanceled: nil,
	} {
		err := fmt.Errorf("do: %w", &bucket.Error{Op: bucket.OpGet, Name: "x", Class: class})
		for _, s := range sentinels {
			if errors.Is(err, s) != (s == want) {
				t.Errorf("%s matches %v: %v", class, s, errors.Is(err, s))
			}
		}
		if bucket.ClassOf(err) != class || class.NeedsUser() != (class == bucket.ClassDenied || class == bucket.ClassQuota) {
			t.Errorf("%s is taken for %s", class, bucket.ClassOf(err))
		}
	}
	if !errors.Is(bucket.ErrExists, base.ErrConflict) || !errors.Is(bucket.ErrRange, base.ErrInvalid) {
		t.Error("sentinels do not match those of base")
	}
}

func TestNewError(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx       context.Context
		op        bucket.Op
		sent      bool
		err       error
		class     bucket.Class
		ambiguous bool
	}{
		{t.Context(), bucket.OpPut, true, syscall.ECONNRESET, bucket.ClassRetryable, true},
		{t.Context(), bucket.OpPut, false, syscall.ECONNREFUSED, bucket.ClassRetryable, false},
		{t.Context(), bucket.OpGet, true, syscall.ECONNRESET, bucket.ClassRetryable, false},
		{t.Context(), bucket.OpGet, true, io.ErrUnexpectedEOF, bucket.ClassRetryable, false},
		{t.Context(), bucket.OpGet, true, fmt.Errorf("get: %w", io.EOF), bucket.ClassRetryable, false},
		{t.Context(), bucket.OpGet, true, context.DeadlineExceeded, bucket.ClassRetryable, false}, // not that of the caller
		{ended, bucket.OpGet, true, context.Canceled, bucket.ClassCanceled, false},
		{ended, bucket.OpPut, true, io.EOF, bucket.ClassCanceled, true},
		{t.Context(), bucket.OpPut, false, syscall.ENOSPC, bucket.ClassQuota, false},
		{t.Context(), bucket.OpPut, false, fs.ErrPermission, bucket.ClassDenied, false},
		{t.Context(), bucket.OpGet, false, fs.ErrNotExist, bucket.ClassNotFound, false},
		{t.Context(), bucket.OpGet, false, errors.New("odd"), bucket.ClassOther, false},
	} {
		err := bucket.NewError(c.ctx, c.op, "x", c.sent, c.err)
		end := c.op == bucket.OpGet && (errors.Is(c.err, io.EOF) || c.err == io.ErrUnexpectedEOF) // that of an object, to a reader
		if bucket.ClassOf(err) != c.class || bucket.Ambiguous(err) != c.ambiguous || errors.Is(err, c.err) == end || end && errors.Is(err, io.EOF) || !strings.Contains(err.Error(), c.err.Error()) {
			t.Errorf("%s %v: %v (%s)", c.op, c.err, err, bucket.ClassOf(err))
		}
		if c.ctx == ended && !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not say that the context has ended", err)
		}
	}
	if bucket.NewError(t.Context(), bucket.OpGet, "x", true, nil) != nil {
		t.Error("an error of nothing")
	}
}

func TestMeterCounts(t *testing.T) {
	b := newMem()
	m := bucket.NewMeter(b, bucket.MeterOptions{})
	errs := []error{put(m, "a", "12345"), put(m, "b", "123")}
	if err := put(m, "a", "1234567"); !errors.Is(err, bucket.ErrExists) {
		t.Error(err)
	}
	_, err := read(m, "a", 1, 2)
	_, err2 := m.List(t.Context(), "", "", 5)
	errs = append(errs, err, err2, m.Delete(t.Context(), "a"))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if _, err := read(m, "gone", 0, -1); !errors.Is(err, base.ErrNotFound) {
		t.Error(err)
	}
	if got, want := m.Counts(), (bucket.Counts{A: 4, B: 2, Free: 1, Up: 15, Down: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if err := m.PutIfAbsent(t.Context(), "long", 3, strings.NewReader("12345")); !errors.Is(err, base.ErrInvalid) || m.Counts().Up != 18 {
		t.Errorf("%v, %d bytes up", err, m.Counts().Up)
	}
	if m.String() != b.String() {
		t.Error(m.String())
	}
}

func TestMeterIsABucket(t *testing.T) {
	buckettest.Run(t, func(*testing.T) bucket.Bucket { return bucket.NewMeter(newMem(), bucket.MeterOptions{}) }, buckettest.Options{HoldsContent: true, LargeBytes: 2 << 20})
}
