package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/keys"
)

// TestTwoDevices: the story of the app: notes with tags and a file on two devices, changed on both
// at once, come together.
func TestTwoDevices(t *testing.T) {
	dir := t.TempDir()
	key, bucket := filepath.Join(dir, "key"), "dir:"+filepath.Join(dir, "bucket")
	if err := keys.CreateFile(key, nil); err != nil {
		t.Fatal(err)
	}
	notes := func(device, in string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), append([]string{filepath.Join(dir, device)}, args...), strings.NewReader(in), &out); err != nil {
			t.Fatalf("notes %v: %v", args, err)
		}
		return out.String()
	}
	want := func(got string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !strings.Contains(got, p) {
				t.Errorf("%q has no %q", got, p)
			}
		}
	}
	id := strings.TrimSpace(notes("phone", "milk\n", "add", "shopping", "home"))
	notes("phone", "", "add", "other", "work")
	notes("phone", "", "sync", bucket, key)
	notes("laptop", "", "sync", bucket, key)
	want(notes("laptop", "", "ls", "home"), id, "shopping")

	photo := filepath.Join(dir, "photo")
	content := bytes.Repeat([]byte("pixels"), 50_000)
	if err := os.WriteFile(photo, content, 0o600); err != nil {
		t.Fatal(err)
	}
	notes("laptop", "", "attach", id, photo)
	notes("phone", "milk, bread\n", "edit", id)
	for range 2 {
		notes("laptop", "", "sync", bucket, key)
		notes("phone", "", "sync", bucket, key)
	}
	for _, device := range []string{"phone", "laptop"} {
		want(notes(device, "", "show", id), "shopping", "milk, bread", "photo:300000", "edits: 3")
		if notes(device, "", "extract", id, "photo") != string(content) {
			t.Errorf("%s has another photo", device)
		}
		if got := notes(device, "", "since", "1h"); strings.Count(got, "\n") != 2 {
			t.Errorf("since: %q", got)
		}
	}
	move := func(from, to string) { // the devices are apart while their bucket is away
		t.Helper()
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	move("bucket", "away")
	notes("phone", "eggs\n", "edit", id)
	notes("laptop", "rice\n", "edit", id)
	move("away", "bucket")
	for range 2 {
		notes("laptop", "", "sync", bucket, key)
		notes("phone", "", "sync", bucket, key)
	}
	for _, device := range []string{"phone", "laptop"} {
		want(notes(device, "", "show", id), "edits: 5\n\nrice\n\nanother device wrote:\neggs\n")
	}
	notes("phone", "", "rm", id)
	if got := notes("phone", "", "ls", "home"); got != "" {
		t.Errorf("a removed note is listed: %q", got)
	}
	for _, args := range [][]string{nil, {dir}, {filepath.Join(dir, "phone"), "show"}, {filepath.Join(dir, "phone"), "show", "none"},
		{filepath.Join(dir, "phone"), "extract", id, "photo"}, {filepath.Join(dir, "phone"), "attach", "none", photo}} {
		if err := run(t.Context(), args, strings.NewReader(""), &bytes.Buffer{}); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}
