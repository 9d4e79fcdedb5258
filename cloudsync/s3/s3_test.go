package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/s3"
	"github.com/ledgerd/ledger/internal/base"
)

// scripted returns a bucket of a server that answers as told, and counts requests.
func scripted(t *testing.T, answer http.HandlerFunc) (*s3.Bucket, *atomic.Int64) {
	t.Helper()
	n := &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	for k, v := range map[string]string{"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "r", "AWS_CONFIG_FILE": "/dev/null"} {
		t.Setenv(k, v)
	}
	b, err := s3.Open(t.Context(), "s3:"+server.URL+"/bucket/prefix")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, n
}

func put(b bucket.Bucket, name, content string) error {
	return b.PutIfAbsent(context.Background(), name, int64(len(content)), strings.NewReader(content))
}

func calls(b bucket.Bucket) map[bucket.Op]error {
	o, getErr := b.Get(context.Background(), "a", 3, 5)
	if getErr == nil {
		_, getErr = io.ReadAll(o.Body)
		getErr = errors.Join(getErr, o.Body.Close())
	}
	_, listErr := b.List(context.Background(), "", "", 1)
	return map[bucket.Op]error{bucket.OpPut: put(b, "a", "x"), bucket.OpGet: getErr, bucket.OpList: listErr, bucket.OpDelete: b.Delete(context.Background(), "a")}
}

// TestStatuses answers every call with each status: one request, and the class of the table.
func TestStatuses(t *testing.T) {
	status := 0
	b, n := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
	})
	for _, status = range []int{400, 401, 402, 403, 404, 408, 409, 410, 412, 413, 416, 429, 500, 501, 502, 503, 504, 507} {
		n.Store(0)
		for op, err := range calls(b) {
			class, ambiguous := bucket.StatusClass(op, status)
			if op == bucket.OpDelete && class == bucket.ClassNotFound {
				class, ambiguous = bucket.ClassOther, false
				if err != nil {
					t.Errorf("delete of what is absent: %v", err)
				}
			}
			if bucket.ClassOf(err) != class || bucket.Ambiguous(err) != ambiguous {
				t.Errorf("%s, %d: %v, want %s", op, status, err, class)
			}
			if op == bucket.OpGet && errors.Is(err, bucket.ErrRange) != (status == 416) {
				t.Errorf("get, %d: %v", status, err)
			}
		}
		if n.Load() != 4 {
			t.Errorf("%d: %d requests for four calls", status, n.Load())
		}
	}
}

// TestCodes: some codes say more than the status that they come with.
func TestCodes(t *testing.T) {
	var status int
	var code string
	b, _ := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>no</Message></Error>`, code)
	})
	for _, c := range []struct {
		status int
		code   string
		want   bucket.Class
	}{
		{400, "RequestTimeout", bucket.ClassRetryable}, {503, "SlowDown", bucket.ClassBusy}, {403, "QuotaExceeded", bucket.ClassQuota},
		{400, "XMinioAdminBucketQuotaExceeded", bucket.ClassQuota}, {404, "NoSuchBucket", bucket.ClassNotFound}, {412, "PreconditionFailed", bucket.ClassExists},
		{403, "SignatureDoesNotMatch", bucket.ClassDenied}, {409, "ConditionalRequestConflict", bucket.ClassBusy},
		{404, "XAdminUserNotFound", bucket.ClassDenied},
	} {
		status, code = c.status, c.code
		if err := put(b, "a", "x"); bucket.ClassOf(err) != c.want || bucket.Ambiguous(err) != (c.want == bucket.ClassRetryable || c.want == bucket.ClassBusy) {
			t.Errorf("%d %s: %v, want %s", status, code, err, c.want)
		}
	}
}

func TestLostAnswers(t *testing.T) {
	b, n := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
	for op, err := range calls(b) {
		write := op == bucket.OpPut || op == bucket.OpDelete
		if bucket.ClassOf(err) != bucket.ClassRetryable || bucket.Ambiguous(err) != write {
			t.Errorf("%s: %v", op, err)
		}
	}
	if got := n.Load(); got > 6 { // net/http itself repeats a get on a connection that was used before
		t.Errorf("%d requests", got)
	}
}

// memory is a server with puts, gets, lists and deletes, as small as can be. It ignores
// If-None-Match.
type memory struct {
	mu      sync.Mutex
	objects map[string]string
}

func (m *memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/bucket/")
	content, there := m.objects[name]
	switch r.Method {
	case http.MethodPut:
		body, _ := io.ReadAll(r.Body)
		m.objects[name] = string(body)
	case http.MethodDelete:
		delete(m.objects, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		if !there {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"0"`)
		http.ServeContent(w, r, "", time.Now().Add(-time.Minute), strings.NewReader(content))
	}
}

// TestProbeRefusesUnconditionalStores: a server that takes If-None-Match and ignores it would lose
// data.
func TestProbeRefusesUnconditionalStores(t *testing.T) {
	m := &memory{objects: map[string]string{}}
	b, _ := scripted(t, m.ServeHTTP)
	_, err := bucket.Probe(t.Context(), b, "p")
	if _, ok := errors.AsType[*bucket.UnfitError](err); !ok {
		t.Errorf("%v", err)
	}
}

// TestShortAnswers: a body that ends early, or a range that is another one, is an error.
func TestShortAnswers(t *testing.T) {
	var header map[string]string
	b, _ := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.WriteHeader(http.StatusPartialContent)
		io.WriteString(w, "abc")
	})
	for _, header = range []map[string]string{
		{"Content-Length": "3", "Content-Range": "bytes 0-2/9"},
		{"Content-Length": "3", "Content-Range": "bytes 3-5/9"},
		{"Content-Length": "5", "Content-Range": "bytes 3-7/9"},
		{"Content-Length": "3", "Content-Range": "nonsense"},
	} {
		o, err := b.Get(t.Context(), "a", 3, 5)
		if err == nil {
			_, err = io.ReadAll(o.Body)
			err = errors.Join(err, o.Body.Close())
		}
		if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrNetwork) && !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%v: %v", header, err)
		}
	}
}
