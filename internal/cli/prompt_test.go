package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/cli"
)

// TestSecretsAreAskedFor gives passphrases and recovery words on a terminal: each verb asks for
// those that it needs and has not been given, new ones twice, and prints none of them.
func TestSecretsAreAskedFor(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	secrets := []string{"of-the-file", "of-the-phone"}
	var words string
	ask := func(want int, answers string, questions []string, args ...string) (out string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		p := process(args, strings.NewReader(answers), &stdout, &stderr)
		p.Asks = true
		if code := cli.Main(t.Context(), p); code != want {
			t.Fatalf("ledgerd %q: exit code %d, want %d: %s", args, code, want, &stderr)
		}
		rest := stderr.String()
		for _, q := range questions {
			_, behind, ok := strings.Cut(rest, "ledgerd: "+q+": ")
			if !ok {
				t.Fatalf("ledgerd %q does not ask for the %s: %s", args, q, &stderr)
			}
			rest = behind
		}
		for _, s := range append(secrets, words) {
			if s != "" && strings.Contains(stdout.String()+stderr.String(), s) {
				t.Errorf("ledgerd %q prints a secret", args)
			}
		}
		return stdout.String()
	}
	both := []string{"new passphrase", "new passphrase again"}
	ask(1, "one\nother\n", both, "key", "init", at("key"), "--protect")
	ask(1, "\n", both[:1], "key", "init", at("key"), "--protect")
	if _, err := os.Stat(at("key")); err == nil {
		t.Fatal("there is a key file")
	}
	ask(0, "of-the-file\nof-the-file\n", both, "key", "init", at("key"), "--protect")
	file := []string{"passphrase of " + at("key")}
	ask(0, "of-the-file\n", file, "key", "show", at("key"))
	do(t, 0, "", "--dir", at("a"), "init")
	do(t, 0, "", "--dir", at("a"), "put", "notes", "k", "v")
	set := []string{"--dir", at("a"), "cloud", "set", "dir:" + at("bucket"), "--key-file", at("key")}
	ask(12, "another\n", file, set...)
	ask(0, "of-the-file\n", file, set...)
	cloud := []string{"passphrase of the cloud"}
	ask(0, "of-the-file\n", cloud, "--dir", at("a"), "sync")
	do(t, 12, "of-the-file\n", "--dir", at("a"), "sync") // which is no terminal
	ask(0, "of-the-file\nof-the-phone\nof-the-phone\n", append(cloud, both...), "--dir", at("a"), "key", "add", "passphrase", "--label", "phone")
	ask(0, "of-the-phone\n", []string{"passphrase"}, "--dir", at("b"), "clone", "dir:"+at("bucket"), "--passphrase")
	ask(0, "of-the-phone\n", cloud, "--dir", at("b"), "sync")
	lines := ask(0, "of-the-file\n", cloud, "--dir", at("a"), "key", "add", "words")
	words = strings.Join(strings.Fields(lines), " ")
	ask(0, words+"\n", []string{"the 24 recovery words"}, "key", "recover", "dir:"+at("bucket"), at("key2"))
	do(t, 0, "", "--dir", at("c"), "clone", "dir:"+at("bucket"), "--key-file", at("key2"))
	if got := do(t, 0, "", "--dir", at("c"), "get", "notes", "k"); got != "v" {
		t.Errorf("the third device has %q", got)
	}
}
