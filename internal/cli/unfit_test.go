package cli_test

import (
	"bytes"
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/cli"
)

// TestUnfitBucketIsNoDamage refuses buckets that lie, in one line each, with a hint that is about
// buckets and not about the repository.
func TestUnfitBucketIsNoDamage(t *testing.T) {
	for _, liar := range buckettest.Liars() {
		if strings.HasPrefix(liar.Name, "has an empty object") {
			continue // then its keyring is what is wrong first
		}
		t.Run(liar.Name, func(t *testing.T) {
			b := liar.Wrap(mem.New(mem.Options{Clock: mem.NewAutoClock(time.Unix(2e9, 0))}))
			var out, errs bytes.Buffer
			repo := filepath.Join(t.TempDir(), "repo")
			runs(t, repo, "", "init")
			code := cli.Main(t.Context(), cli.Process{
				Args:  []string{"--dir", repo, "cloud", "set", "liar:x", "--plaintext"},
				Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, LookupEnv: func(string) (string, bool) { return "", false },
				Buckets: map[string]bucket.Opener{
					"liar": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return b, nil },
				},
			})
			said := errs.String()
			if code != cli.ExitError || !strings.Contains(said, "the bucket does not do what is needed") || strings.Contains(said, `\n`) ||
				!strings.Contains(said, "try: name a bucket of another store") {
				t.Errorf("exit code %d: %s", code, said)
			}
		})
	}
}

// TestTroubleOfABucketIsNotOfThisDisk takes rights and room away in a bucket: the hint is about
// that.
func TestTroubleOfABucketIsNotOfThisDisk(t *testing.T) {
	for want, trouble := range map[string]error{"rights in the bucket": fs.ErrPermission, "room in the bucket": ledger.ErrNoSpace} {
		b := mem.New(mem.Options{Clock: mem.NewAutoClock(time.Unix(2e9, 0))})
		b.SetBefore(func(op bucket.Op, _ string) error {
			if op == bucket.OpPut {
				return trouble
			}
			return nil
		})
		var out, errs bytes.Buffer
		repo := filepath.Join(t.TempDir(), "repo")
		runs(t, repo, "", "init")
		code := cli.Main(t.Context(), cli.Process{
			Args:  []string{"--dir", repo, "cloud", "set", "full:x", "--plaintext"},
			Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, LookupEnv: func(string) (string, bool) { return "", false },
			Buckets: map[string]bucket.Opener{
				"full": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return b, nil },
			},
		})
		if code != cli.ExitError || !strings.Contains(errs.String(), want) {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
	}
}
