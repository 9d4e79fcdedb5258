package ledger_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// TestTemporaryFilesHaveNoNames looks into the system's directory for temporary files while a
// repository is checked and backed up: what a process leaves there that is killed stays for ever.
func TestTemporaryFilesHaveNoNames(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed")
	}
	dir, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	r := open(t, dir, nil)
	p := page(t, r, "app", "page")
	for i := range 5 {
		put(t, p, string(rune('a'+i)), string(pseudo(uint64(i), 100_000)))
	}
	looks := 0
	look := func() {
		looks++
		if entries, err := os.ReadDir(temp); err != nil || len(entries) > 0 {
			t.Errorf("%v is there, %v", entries, err)
		}
	}
	_, err := admin.Check(t.Context(), r, &admin.CheckOptions{Progress: func(ledger.Progress) { look() }})
	if err != nil || looks == 0 {
		t.Fatalf("%d looks, %v", looks, err)
	}
	looks = 0
	if err := admin.BackupTo(t.Context(), r, writerFunc(look), nil); err != nil || looks == 0 {
		t.Fatalf("%d looks, %v", looks, err)
	}
	closeIt(t, r)
	look()
}
