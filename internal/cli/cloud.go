package cli

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// passphraseVariable is the environment variable with the passphrase itself. No flag has the
// passphrase, because other users can see the arguments of a process.
const passphraseVariable = "LEDGER_PASSPHRASE"

// cloudFlags name a cloud, its key and credentials.
type cloudFlags struct {
	URL bucketURL `arg:""`
	credentialsFlag
	KeyFile        string `flag:"key-file" usage:"file with the master key (default: $LEDGER_KEY_FILE; see: ledgerd key init)"`
	PassphraseFile string `flag:"passphrase-file" usage:"file with the passphrase, one line (or set LEDGER_PASSPHRASE)"`
	Ask            bool   `flag:"passphrase" usage:"ask for the passphrase on the terminal"`
	BucketID       string `flag:"bucket-id" usage:"id that the bucket must have, from key show on another device"`
	Plaintext      bool   `flag:"plaintext" usage:"do not encrypt: everybody who can read the bucket can read all data"`
	Shared         bool   `flag:"shared-key-file" usage:"allow a key file that other users can read"`
}

// credentialsFlag is the flag of verbs with a bucket as an argument.
type credentialsFlag struct {
	Credentials string `flag:"credentials-file" usage:"file with credentials for the bucket (default: from the environment)"`
}

// options returns the cloud that the flags describe.
func (f *cloudFlags) options(ctx context.Context, a *app) (*ledger.Cloud, error) {
	if !a.changed("key-file") && (f.Plaintext || f.PassphraseFile != "" || f.Ask) {
		f.KeyFile = "" // the command line overrides the environment
	}
	if id, err := hex.DecodeString(f.BucketID); err != nil || f.BucketID != "" && len(id) != 16 {
		return nil, usagef("--bucket-id is %q, want 32 hexadecimal digits", f.BucketID)
	}
	o := &ledger.Cloud{
		URL: f.URL.url, KeyFile: a.path(f.KeyFile), SharedKeyFile: f.Shared, Plaintext: f.Plaintext,
		CredentialsFile: a.path(f.Credentials), BucketID: f.BucketID,
	}
	switch pass, err := a.keyFilePassphrase(ctx, f.PassphraseFile, o.KeyFile); {
	case err != nil:
		return o, err
	case len(pass) > 0:
		o.KeyFilePassphrase = pass
		return o, nil
	}
	var err error
	if f.Ask {
		o.Passphrase, err = a.askSecret(ctx, "passphrase")
	} else if f.PassphraseFile != "" || f.KeyFile == "" && !f.Plaintext {
		o.Passphrase, err = a.passphrase(f.PassphraseFile)
	}
	switch ways := counted(o.KeyFile != "", len(o.Passphrase) > 0, o.Plaintext); {
	case err != nil:
		return o, err
	case ways == 0:
		return o, withHint(usagef("a cloud needs a key: name one with --key-file or --passphrase-file, "+
			"or give --plaintext if everybody who can read the bucket may read all data"),
			"%s key init FILE makes a key", a.process.Program)
	case ways > 1:
		return o, usagef("want exactly one of --key-file, --passphrase-file and --plaintext")
	}
	return o, nil
}

// bucketURL is the URL of a bucket: as the user wrote it, and resolved for this process. A scheme
// that this program cannot open is an error.
type bucketURL struct{ text, url string }

func (u *bucketURL) read(a *app, text string) error {
	scheme, rest, _ := strings.Cut(text, ":")
	schemes := append(slices.Sorted(maps.Keys(a.process.Buckets)), "dir")
	if rest == "" || !slices.Contains(schemes, scheme) {
		return usagef("%s is not the URL of a bucket, want one that begins with %s:", quoted(text), strings.Join(schemes, ": or "))
	}
	u.text, u.url = text, text
	if scheme == "dir" {
		u.url = "dir:" + a.path(rest)
	}
	return nil
}

// passphrase returns the one line of a file or, without a file, the variable of the environment.
// The result is empty for none.
func (a *app) passphrase(file string) ([]byte, error) {
	if file == "" {
		text := a.env(passphraseVariable)
		return []byte(text), nil
	}
	text, err := a.secretFile("passphrase", "passphrase file", file)
	line := strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	if err == nil && (line == "" || strings.Contains(line, "\n")) {
		err = classedf(ledger.ErrInvalid, "read passphrase: %s does not hold one line", quoted(file))
	}
	return []byte(line), err
}

// secretFile returns the content of a file. It warns if other users may read the file.
func (a *app) secretFile(what, kind, file string) (string, error) {
	b, err := os.ReadFile(a.path(file))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	a.cautionModes(kind, a.path(file), 0)
	return string(b), nil
}

func (a *app) cloudSet(ctx context.Context, f cloudFlags) error {
	o, err := f.options(ctx, a)
	if err != nil {
		return err
	}
	if path, ok := strings.CutPrefix(o.URL, "dir:"); ok {
		if in, err := inside(path, a.dir); err != nil || in {
			return cmp.Or(err, usagef("set the cloud %s: it lies in the repository %s itself", quoted(f.URL.text), quoted(a.dir)))
		}
	}
	return a.change(ctx, func(repo *ledger.Repository) error {
		before, _ := repo.Cloud()
		info, err := repo.SetCloud(ctx, o)
		if err != nil && f.BucketID != "" {
			err = a.cloneHint(err)
		}
		if err != nil {
			return err
		}
		if before.BucketID != "" && before.BucketID != info.BucketID && info.KeyFile != "" && before.KeyFile == info.KeyFile {
			a.printWarning(fmt.Sprintf("%s is also the key of bucket %s: its owner could show one bucket to a new device in place of the other", info.KeyFile, before.BucketID),
				"make a key for each bucket, or give new devices --bucket-id "+info.BucketID)
		}
		a.block("", cloudObject(info))
		if info.Founded {
			a.cautionWeak(o.Passphrase)
			a.tell("this is a new, empty bucket. If other devices share a bucket already, its URL is another one")
		} else if info.BucketID != before.BucketID {
			a.tell("joined the existing bucket %s", info.BucketID)
		}
		a.tell("next: %s", a.command("sync"))
		return nil
	})
}

func (a *app) cloudShow(ctx context.Context, _ []string) error {
	info, err := a.cloud(ctx)
	if err == nil {
		a.block("", cloudObject(info))
	}
	return err
}

// cloud returns the cloud of the repository.
func (a *app) cloud(ctx context.Context) (info ledger.CloudInfo, err error) {
	err = a.read(ctx, func(repo *ledger.Repository) error {
		var ok bool
		if info, ok = repo.Cloud(); !ok {
			return ledger.ErrNoCloud
		}
		return nil
	})
	return info, err
}

// cloudObject is a cloud as verbs print it.
func cloudObject(c ledger.CloudInfo) object {
	return object{
		"url", c.URL, "bucket", c.BucketID, "sealing~?", sealingText(c), "algorithm!", c.Algorithm, "plaintext!", c.Plaintext,
		"keyFile!?", c.KeyFile, "passphrase!", c.Passphrase, "credentialsFile?", c.CredentialsFile, "device", c.Device, "paused", c.Paused,
		"error?", c.Err,
	}
}

// sealingText describes the protection of a cloud.
func sealingText(c ledger.CloudInfo) string {
	switch {
	case c.Algorithm == "": // the file with the cloud is damaged
		return ""
	case c.Plaintext:
		return "none: the bucket is plaintext, everybody who can read it can read all data"
	case c.Passphrase:
		return c.Algorithm + ", key from a passphrase"
	}
	return c.Algorithm + ", key in " + quoted(c.KeyFile)
}

type cloudProbeFlags struct {
	URL bucketURL `arg:""`
	credentialsFlag
}

func (a *app) cloudProbe(ctx context.Context, f cloudProbeFlags) error {
	points, err := admin.ProbeCloud(ctx, f.URL.url, f.Credentials, &ledger.Options{Buckets: a.process.Buckets})
	for _, p := range points {
		if a.json || !a.quiet || p.Err != nil {
			a.show(object{"promise", p.Name, "ok", p.Err == nil, "error?", p.Err})
		}
	}
	if err == nil {
		a.summary("the bucket is fit\n")
	}
	return err
}

func (a *app) cloudGC(ctx context.Context, repo *ledger.Repository, f dryRun) error {
	reports, err := admin.CollectCloud(ctx, repo, &admin.CloudCollectOptions{DryRun: f.Dry})
	for _, r := range reports {
		a.outcome(f.Dry, "collected", object{
			"page", nameOf(r.Ledger, r.Name, r.ID), "givenUpCommits", r.Commits, "cut", r.Cut, "unmergedHeads?", unmerged(r.Heads), "deletedObjects", r.DeletedObjects,
			"deletedBytes", size(r.DeletedBytes), "waitingObjects", r.WaitingObjects, "waitingBytes", size(r.WaitingBytes),
		})
	}
	return err
}

func cloudPause(ctx context.Context, repo *ledger.Repository, _ struct{}) error {
	return repo.PauseSync(ctx, true)
}

func cloudResume(ctx context.Context, repo *ledger.Repository, _ struct{}) error {
	return repo.PauseSync(ctx, false)
}

func (a *app) cloudUnset(ctx context.Context, repo *ledger.Repository, f dryRun) error {
	info, ok := repo.Cloud()
	if !ok {
		return ledger.ErrNoCloud
	}
	if !f.Dry {
		if _, err := repo.SetCloud(ctx, nil); err != nil {
			return err
		}
	}
	a.outcome(f.Dry, "left", object{"url", info.URL, "bucket", info.BucketID})
	return nil
}
