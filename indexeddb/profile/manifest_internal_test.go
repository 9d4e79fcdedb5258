package profile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
)

// FuzzManifest: whatever stands in a journal or manifest is read to its end, or refused.
func FuzzManifest(f *testing.F) {
	for _, pattern := range []string{"MANIFEST-*", "*.log"} {
		paths, err := filepath.Glob(filepath.Join("testdata", "chromium-156", "*.leveldb", pattern))
		if err != nil || len(paths) == 0 {
			f.Fatal(paths, err)
		}
		b, err := os.ReadFile(paths[0])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 2*blockBytes)], true)
		f.Add(b[min(len(b)-1, headBytes):min(len(b), blockBytes)], false)
	}
	f.Fuzz(func(t *testing.T, b []byte, whole bool) {
		m := &manifest{tables: map[uint64]uint64{}}
		if !whole { // one edit, whose checksum need not be right
			if err := m.edit(b); err != nil && !errors.Is(err, base.ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		r := bytes.NewReader(b)
		end, err := recordsEnd(r, r.Size(), "file")
		if err == nil {
			if end > r.Size() {
				t.Fatalf("%d bytes end at %d", r.Size(), end)
			}
			err = forRecords(r, end, "file", m.edit)
		}
		if err != nil && !errors.Is(err, base.ErrCorrupt) {
			t.Error(err)
		}
	})
}
