package archtest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDesignHasThePackages holds the table of packages in docs/design.md to the one here: each
// package, or one that it lies in, has a row, and imports only what stands in that row or below.
func TestDesignHasThePackages(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Parts\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string]int{}
	for i, line := range strings.Split(table, "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for _, name := range regexp.MustCompile("`([a-z0-9/]+)`").FindAllStringSubmatch(cells[1], -1) {
				rows[name[1]] = i
			}
		}
	}
	rows[""] = rows["ledger"] // the root
	delete(rows, "ledger")
	row := func(pkg string) (int, bool) {
		for name := pkg; ; {
			if i, ok := rows[name]; ok {
				return i, true
			}
			slash := strings.LastIndexByte(name, '/')
			if slash < 0 {
				return 0, false
			}
			name = name[:slash]
		}
	}
	for _, r := range rules {
		at, ok := row(r.pkg)
		if !ok {
			t.Errorf("docs/design.md has no row for %q", r.pkg)
		}
		for _, imp := range r.allow {
			if i, ok := row(imp); ok && i < at {
				t.Errorf("docs/design.md has %q above %q, which imports it", imp, r.pkg)
			}
		}
	}
	for name := range rows {
		if _, err := os.Stat("../../" + name); err != nil {
			t.Errorf("docs/design.md has a row for %q, which does not exist", name)
		}
	}
}
