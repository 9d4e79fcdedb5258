package gcs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// The client library's census of calls has one goroutine for the life of the program.
func TestMain(m *testing.M) {
	time.Local = time.UTC // the emulator says when objects were made by the time of its zone, and calls that Greenwich's
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

func TestWithoutToken(t *testing.T) {
	for status, class := range map[int]bucket.Class{400: bucket.ClassDenied, 401: bucket.ClassDenied, 503: bucket.ClassRetryable} {
		cause := &auth.Error{Response: &http.Response{StatusCode: status}}
		err := mapError(context.Background(), bucket.OpPut, "a", fmt.Errorf("do: %w", cause))
		if bucket.ClassOf(err) != class || bucket.Ambiguous(err) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestParse(t *testing.T) {
	for url, want := range map[string][2]string{
		"gs://bucket": {"bucket", ""}, "gs://bucket/": {"bucket", ""}, "gs://my.bucket_1-x/a/b": {"my.bucket_1-x", "a/b/"}, "gs://bucket/a/": {"bucket", "a/"},
	} {
		if name, prefix, err := parse(url); name != want[0] || string(prefix) != want[1] || err != nil {
			t.Errorf("%s: %q, %q, %v", url, name, prefix, err)
		}
	}
}

// TestTokensAreFetchedLater has a token come after the context is gone under which the bucket was
// opened; a service that gives none keeps no caller who leaves.
func TestTokensAreFetchedLater(t *testing.T) {
	hang := make(chan struct{})
	tokens := make(chan bool, 9) // whether they are given
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/token" {
			fmt.Fprint(w, r.Header.Get("Authorization"))
			return
		}
		if !<-tokens {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token": "secret", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": 3600}`)
	}))
	defer service.Close()
	defer close(hang)
	dir := t.TempDir()
	for name, content := range map[string]string{"subject": "subject", "credentials": fmt.Sprintf(`{"type": "external_account", "audience": "a", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"token_url": %q, "credential_source": {"file": %q}}`, service.URL+"/token", filepath.Join(dir, "subject"))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(dir, "credentials"))
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	get := func(ctx context.Context) (string, error) {
		opening, cancel := context.WithCancel(t.Context())
		b, err := Open(opening, "gs://bucket", Options{})
		if cancel(); err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, service.URL+"/object", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := b.transport.next.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		content, err := io.ReadAll(answer.Body)
		return string(content), err
	}
	tokens <- true
	if got, err := get(t.Context()); err != nil || got != "Bearer secret" {
		t.Errorf("%q, %v", got, err)
	}
	tokens <- false
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := get(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a token: %q, %v", got, err)
	}
}
