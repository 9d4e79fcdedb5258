package lint

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDocumentWidth holds the text of documents to the width of comments. Tables and programs may
// be wider, and docs/cli.md, which is made from the help of the tool.
func TestDocumentWidth(t *testing.T) {
	for _, path := range filesOf(t, ".md") {
		if strings.HasSuffix(path, "docs/cli.md") {
			continue
		}
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
