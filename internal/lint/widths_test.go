package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDocumentWidth holds the text of documents to the width of comments. Tables and programs may
// be wider, and docs/cli.md, which is made from the help of the tool.
func TestDocumentWidth(t *testing.T) {
	var documents []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".md") && !strings.HasSuffix(path, "docs/cli.md") {
			documents = append(documents, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		inside := false
		n := 0
		for line := range strings.SplitSeq(string(text), "\n") {
			n++
			if strings.HasPrefix(line, "```") {
				inside = !inside
			}
			if !inside && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") && utf8.RuneCountInString(line) > 100 {
				t.Errorf("%s:%d: text above 100 columns", strings.TrimPrefix(path, root+"/"), n)
			}
		}
	}
}
