package s3

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for url, want := range map[string]place{
		"s3://bucket":                     {"", "bucket", ""},
		"s3://bucket/":                    {"", "bucket", ""},
		"s3://my.bucket-1/a/b":            {"", "my.bucket-1", "a/b/"},
		"s3:https://host/bucket/a/":       {"https://host", "bucket", "a/"},
		"s3:http://127.0.0.1:9000/bucket": {"http://127.0.0.1:9000", "bucket", ""},
	} {
		if got, err := parse(url); got != want || err != nil {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
	for _, url := range []string{
		"", "s3:", "s3://", "s3://ab", "s3://bucket/../a", "s3://Bucket", "s3:bucket", "s3:ftp://host/bucket", "s3:https:///bucket",
		"s3:https://user:secret@host/bucket", "s3:https://host/bucket?x=1", "s3:https://host/", "s3://bucket/a b", "gs://bucket",
	} {
		if got, err := parse(url); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%q: %+v, %v", url, got, err)
		}
	}
}

// TestConfigure: the URL goes before the environment, and the environment before the profile.
func TestConfigure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("[default]\nregion = eu-1\n[profile work]\nregion = eu-2\nendpoint_url = http://profile:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"AWS_CONFIG_FILE", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}
	for _, c := range []struct {
		url                  string
		env                  [6]string
		host, region, broken string
		secure               bool
	}{
		{"", [6]string{"/does/not/exist"}, "s3.amazonaws.com", "", "", true},
		{"", [6]string{file}, "s3.amazonaws.com", "eu-1", "", true},
		{"", [6]string{file, "work"}, "profile:1", "eu-2", "", false},
		{"", [6]string{file, "work", "r", "", "https://all", "https://s3only"}, "s3only", "r", "", true},
		{"https://url:2", [6]string{file, "work", "", "d", "https://all", "https://s3only"}, "url:2", "d", "", true},
		{"http://minio", [6]string{"/does/not/exist"}, "minio", "us-east-1", "", false},
		{"", [6]string{file, "", "", "", "https://host/path"}, "", "", "an endpoint with a path", false},
		{"", [6]string{file, "", "", "", "nonsense"}, "", "", "an endpoint without a scheme", false},
	} {
		for i, n := range names {
			t.Setenv(n, c.env[i])
		}
		got, err := configure(c.url)
		if c.broken != "" {
			if !errors.Is(err, base.ErrInvalid) {
				t.Errorf("%s: %v", c.broken, err)
			}
			continue
		}
		if err != nil || got.host != c.host || got.region != c.region || got.secure != c.secure {
			t.Errorf("%q with %q: %+v, %v", c.url, c.env, got, err)
		}
	}
}

func TestParseRange(t *testing.T) {
	for s, want := range map[string][2]int64{"bytes 5-9/20": {5, 20}, "bytes 0-0/1": {0, 1}, "bytes */20": {-1, 20}, "": {-1, -1}, "bytes 5-9/*": {5, -1}, "bytes -5-9/-3": {-1, -1}} {
		if a, b := parseRange(s); a != want[0] || b != want[1] {
			t.Errorf("%q: %d of %d", s, a, b)
		}
	}
}

func TestOpenerTakesNoFile(t *testing.T) {
	if _, err := Opener(t.Context(), "s3://bucket", bucket.OpenOptions{CredentialsFile: "f"}); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
}
