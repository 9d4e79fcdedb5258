package gcs

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"cloud.google.com/go/auth"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// The client library's census of calls has one goroutine for the life of the program.
func TestMain(m *testing.M) {
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
		if name, prefix, err := parse(url); name != want[0] || prefix != want[1] || err != nil {
			t.Errorf("%s: %q, %q, %v", url, name, prefix, err)
		}
	}
}
