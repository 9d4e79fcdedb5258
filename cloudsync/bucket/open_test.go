package bucket_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

func TestOpeners(t *testing.T) {
	refused := errors.New("refused")
	var asked string
	openers := bucket.Openers{
		"mem": func(_ context.Context, url string, o bucket.OpenOptions) (bucket.Bucket, error) {
			asked = url + " " + o.CredentialsFile
			return mem.New(mem.Options{}), nil
		},
		"bad": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return nil, refused },
	}
	b, err := openers.Open(t.Context(), "mem:x/y", bucket.OpenOptions{CredentialsFile: "c"})
	if err != nil || asked != "mem:x/y c" {
		t.Fatalf("opened with %q: %v", asked, err)
	}
	if err := bucket.Close(b); err != nil {
		t.Error(err)
	}
	if err := bucket.Close(nil); err != nil {
		t.Error(err)
	}
	for url, want := range map[string]error{
		"": base.ErrInvalid, "mem": base.ErrInvalid, ":x": base.ErrInvalid, "mem:": base.ErrInvalid, "Mem:x": base.ErrInvalid, "/a:b": base.ErrInvalid,
		"gs://bucket": base.ErrUnsupported, "bad:x": refused,
	} {
		if b, err := openers.Open(t.Context(), url, bucket.OpenOptions{}); !errors.Is(err, want) || b != nil {
			t.Errorf("open %q: %v, %v; want %v", url, b, err, want)
		}
	}
	if _, err := openers.Open(t.Context(), "gs://bucket", bucket.OpenOptions{}); !strings.Contains(err.Error(), "bad:, mem:") {
		t.Errorf("%v does not say what is known", err)
	}
}
