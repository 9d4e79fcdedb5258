package cli_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unzipped returns the content of a file of package metabase's tests.
func unzipped(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "metabase", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCatalogOfANode imports the file of a node and finds with its queries what the node finds.
func TestCatalogOfANode(t *testing.T) {
	var fixture struct {
		Search []struct {
			Container  string
			Filters    []struct{ K, Op, V string }
			Attributes []string
			Error      string
			Pages      [][]struct {
				ID    string
				Attrs []string
			}
			Unreachable bool
		}
	}
	if err := json.Unmarshal(unzipped(t, "expected.json.gz"), &fixture); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, repo := filepath.Join(dir, "meta.db"), filepath.Join(dir, "repo")
	if err := os.WriteFile(file, unzipped(t, "v3.db.gz"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, 0, "", "--dir", repo, "catalog", "import", "node", file, "--epoch", "100")
	forms := map[string]string{"EQ": "=", "NE": "!=", "PFX": "^=", "GT": ">", "GE": ">=", "LT": "<", "LE": "<="}
	for i, s := range fixture.Search {
		args := []string{"--dir", repo, "catalog", "find", "node", "--epoch", "100", "--container", s.Container, "--json"}
		for _, f := range s.Filters {
			switch f.Op {
			case "NP":
				args = append(args, "!"+f.K)
			case "-":
				args = append(args, f.K)
			default:
				args = append(args, f.K+forms[f.Op]+f.V)
			}
		}
		if len(s.Attributes) > 0 {
			args = append(args, "--attributes", strings.Join(s.Attributes, ","))
		}
		code := 0
		if s.Error != "" && !s.Unreachable {
			code = 2 // the query cannot be asked
		}
		out := do(t, code, "", args...)
		if s.Error != "" {
			if strings.Contains(out, `"id"`) {
				t.Errorf("search %d: %s", i, out)
			}
			continue
		}
		var want, got []string
		for _, o := range slices.Concat(s.Pages...) {
			want = append(want, o.ID+" "+strings.Join(o.Attrs, ","))
		}
		for line := range strings.Lines(out) {
			var o struct {
				ID         string
				Attributes map[string]string
			}
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Fatal(err)
			}
			var values []string
			for _, a := range s.Attributes {
				values = append(values, o.Attributes[a])
			}
			got = append(got, o.ID+" "+strings.Join(values, ","))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("search %d (-want +got):\n%s", i, diff)
		}
	}
}
