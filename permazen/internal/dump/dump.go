package dump

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/layout"
)

// Load returns the rows of a dump.
func Load(t testing.TB, path string) *ordered.Memory {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows := ordered.NewMemory()
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		key, err := hex.DecodeString(f[0])
		if err != nil {
			t.Fatal(err)
		}
		value, err := hex.DecodeString(strings.Trim(f[1], "-"))
		if err != nil {
			t.Fatal(err)
		}
		if err := rows.Put(context.WithoutCancel(t.Context()), key, value); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// Diff returns the rows that differ between two databases, one line for each. It compares schemas
// as XML, because the compressed forms of one document can differ.
func Diff(t testing.TB, got, want ordered.Reader) string {
	t.Helper()
	a, b := rows(t, got), rows(t, want)
	var out strings.Builder
	for key, value := range a {
		if w, ok := b[key]; !ok {
			fmt.Fprintf(&out, "+ %x %x\n", key, value)
		} else if value != w {
			fmt.Fprintf(&out, "! %x %x, want %x\n", key, value, w)
		}
	}
	for key, value := range b {
		if _, ok := a[key]; !ok {
			fmt.Fprintf(&out, "- %x %x\n", key, value)
		}
	}
	return out.String()
}

func rows(t testing.TB, r ordered.Reader) map[string]string {
	all := map[string]string{}
	for row, err := range ordered.Rows(context.WithoutCancel(t.Context()), r, ordered.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(row.Key, layout.SchemaTable[:]) {
			if m, err := layout.ParseSchema(row.Value); err == nil {
				row.Value = []byte(m.XML())
			}
		}
		all[string(row.Key)] = string(row.Value)
	}
	return all
}
