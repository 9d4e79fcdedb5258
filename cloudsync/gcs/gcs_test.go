package gcs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/gcs"
	"github.com/ledgerd/ledger/internal/base"
)

func open(t *testing.T, host, url string) *gcs.Bucket {
	t.Helper()
	t.Setenv("STORAGE_EMULATOR_HOST", host)
	b, err := gcs.Open(t.Context(), url, gcs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// fake returns a server of the emulator, and its address.
func fake(t *testing.T) (*fakestorage.Server, string) {
	t.Helper()
	web := httptest.NewUnstartedServer(nil) // it has its address already, which the emulator must know
	t.Cleanup(web.Close)
	host := web.Listener.Addr().String()
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, ExternalURL: "http://" + host, PublicHost: host, Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	web.Config.Handler = s.HTTPHandler()
	web.Start()
	return s, web.URL
}

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

func TestConformance(t *testing.T) {
	s, host := fake(t)
	n := 0
	buckettest.Run(t, func(t *testing.T) bucket.Bucket {
		n++
		name := fmt.Sprintf("bucket-%d", n)
		s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: name})
		return open(t, host, "gs://"+name)
	}, buckettest.Options{HoldsContent: true, LargeBytes: 40 << 20})
}

func TestPrefix(t *testing.T) {
	s, host := fake(t)
	s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "bucket"})
	whole, sub := open(t, host, "gs://bucket"), open(t, host, "gs://bucket/some/where/")
	if err := errors.Join(put(sub, "a", "below"), put(whole, "a", "above"), put(whole, "some/wherever", "x")); err != nil {
		t.Fatal(err)
	}
	s.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "bucket", Name: "some/where/Foreign Name"}})
	if got, err := read(whole, "some/where/a", 0, -1); got != "below" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	infos, err := sub.List(t.Context(), "", "", 10)
	if err != nil || len(infos) != 1 || infos[0].Name != "a" {
		t.Errorf("%v, %v", infos, err)
	}
	if _, err := bucket.Probe(t.Context(), sub, "p"); err != nil {
		t.Error(err)
	}
	if err := put(sub, strings.Repeat("a", 1015), "x"); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("a name that is too long with the prefix: %v", err)
	}
}

func TestAbsentBucket(t *testing.T) {
	_, host := fake(t)
	b := open(t, host, "gs://absent")
	_, getErr := read(b, "a", 0, -1)
	_, listErr := b.List(t.Context(), "", "", 1)
	for _, err := range []error{put(b, "a", "x"), getErr, listErr} {
		if bucket.ClassOf(err) != bucket.ClassNotFound {
			t.Error(err)
		}
	}
}

// scripted returns a bucket of a server that answers as told, and counts requests.
func scripted(t *testing.T, answer http.HandlerFunc) (*gcs.Bucket, *atomic.Int64) {
	t.Helper()
	n := &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return open(t, s.URL, "gs://bucket"), n
}

func calls(b bucket.Bucket) map[bucket.Op]error {
	_, getErr := read(b, "a", 3, 5)
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
			if op == bucket.OpDelete && status == 404 {
				if err != nil {
					t.Errorf("delete of what is absent: %v", err)
				}
				continue
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

func TestReasons(t *testing.T) {
	reason := ""
	b, _ := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(403)
		fmt.Fprintf(w, `{"error":{"code":403,"message":"no","errors":[{"reason":%q,"message":"no"}]}}`, reason)
	})
	for r, class := range map[string]bucket.Class{"rateLimitExceeded": bucket.ClassBusy, "quotaExceeded": bucket.ClassQuota, "forbidden": bucket.ClassDenied} {
		reason = r
		if err := put(b, "a", "x"); bucket.ClassOf(err) != class {
			t.Errorf("%s: %v", r, err)
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

// TestPutIsConditional looks at the request itself, since an emulator that ignored the condition
// would not.
func TestPutIsConditional(t *testing.T) {
	query, body := "", ""
	b, n := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		all, _ := io.ReadAll(r.Body)
		query, body = r.URL.RawQuery, string(all)
		w.WriteHeader(412)
	})
	if err := put(b, "a", "the content"); !errors.Is(err, bucket.ErrExists) || bucket.Ambiguous(err) {
		t.Error(err)
	}
	if n.Load() != 1 || !strings.Contains(query, "ifGenerationMatch=0") || !strings.Contains(query, "uploadType=multipart") || !strings.Contains(body, "the content") {
		t.Errorf("%d requests, %s", n.Load(), query)
	}
}

// brokenReader gives n bytes, and then an error.
type brokenReader struct {
	n   int
	err func() error
}

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, r.err()
	}
	n := copy(p, strings.Repeat("x", min(len(p), r.n)))
	r.n -= n
	return n, nil
}

// TestPartOfAContent has content break off, and callers leave within it: no server can take the
// part for the whole, however slowly the client gives the request up.
func TestPartOfAContent(t *testing.T) {
	whole, ends := atomic.Int64{}, make(chan struct{}, 100)
	b, _ := scripted(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err == nil || strings.Contains(string(body), "--"+params["boundary"]+"--") {
			whole.Add(1)
		}
		ends <- struct{}{}
	})
	for i := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		broken := &brokenReader{n: 200_000 * (i % 2 * 2), err: func() error { return errors.New("no more") }}
		if i%4 == 3 {
			broken.err = func() error { cancel(); return nil }
		}
		if err := b.PutIfAbsent(ctx, "a", 1<<20, broken); err == nil {
			t.Error("it was stored")
		}
		cancel()
		if broken.n == 0 && i%2 == 1 {
			<-ends
		}
	}
	if n := whole.Load(); n > 0 {
		t.Errorf("%d requests looked whole", n)
	}
}

// TestBadBodies answers a get of bytes 3 to 7 of "0123456789" otherwise.
func TestBadBodies(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		class  bucket.Class
	}{
		{"the whole", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "0123456789") }, bucket.ClassCorrupt},
		{"another range", ranged("bytes 2-6/10", "23456"), bucket.ClassCorrupt},
		{"more than the range", ranged("bytes 3-9/10", "3456789"), bucket.ClassCorrupt},
		{"less than the range", ranged("bytes 3-5/10", "345"), bucket.ClassCorrupt},
		{"nonsense", ranged("bytes nonsense", "34567"), bucket.ClassCorrupt},
		{"a cut body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 3-7/10")
			w.Header().Set("Content-Length", "5")
			w.WriteHeader(206)
			io.WriteString(w, "34")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, bucket.ClassRetryable},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, n := scripted(t, c.answer)
			if got, err := read(b, "a", 3, 5); bucket.ClassOf(err) != c.class || err == nil || n.Load() != 1 {
				t.Errorf("%q, %v (%s), %d requests", got, err, bucket.ClassOf(err), n.Load())
			}
		})
	}
}

func ranged(header, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", header)
		w.WriteHeader(206)
		io.WriteString(w, body)
	}
}

func TestBadLists(t *testing.T) {
	items := ""
	b, n := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, items)
	})
	for name, c := range map[string]struct {
		items string
		want  int64 // requests
	}{
		"out of order":  {`{"items":[{"name":"b"},{"name":"a"}]}`, 1},
		"repeated":      {`{"items":[{"name":"a"},{"name":"a"}]}`, 1},
		"pages forever": {`{"nextPageToken":"x"}`, 1000},
	} {
		items = c.items
		n.Store(0)
		if infos, err := b.List(t.Context(), "", "", 10); bucket.ClassOf(err) != bucket.ClassCorrupt || n.Load() != c.want {
			t.Errorf("%s: %v, %v, %d requests", name, infos, err, n.Load())
		}
	}
	items = `{"items":[{"name":"../x"},{"name":"A"},{"name":"a"},{"name":"a/"},{"name":"b"}]}`
	if infos, err := b.List(t.Context(), "", "", 10); len(infos) != 2 || err != nil {
		t.Errorf("%v, %v", infos, err)
	}
}

// TestStoredOtherwise answers a put with properties that are not those of what was sent.
func TestStoredOtherwise(t *testing.T) {
	b, _ := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"name":"a","bucket":"bucket","size":"1","crc32c":"AAAAAA=="}`)
	})
	if err := put(b, "a", "x"); err == nil || !bucket.Ambiguous(err) {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	for _, url := range []string{"", "gs://", "gs:///x", "gs://ab", "s3://bucket", "gs://bucket/a//b", "gs://bucket/..", "gs://Bucket", "gs://user:secret@bucket", "gs://bucket/A"} {
		if _, err := gcs.Open(t.Context(), url, gcs.Options{}); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%q: %v", url, err)
		}
	}
	file := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(file, []byte(`{"type":"service_account","private_key":"canary"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{file, file + "-absent"} {
		_, err := gcs.Open(t.Context(), "gs://bucket", gcs.Options{CredentialsFile: f})
		if !errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", f, err)
		}
	}
	b := open(t, "127.0.0.1:1", "gs://bucket/x")
	if b.String() != "gs://bucket/x" {
		t.Error(b)
	}
	if err := put(b, "a", "x"); !errors.Is(err, base.ErrNetwork) {
		t.Errorf("nobody listens: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := put(b, "a", "x"); !errors.Is(err, base.ErrClosed) {
		t.Error(err)
	}
}
