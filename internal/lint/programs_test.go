package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// filesOf returns the files of the repository whose names end so.
func filesOf(t *testing.T, suffix string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, suffix) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// code returns the lines of a program text that say something, with single spaces.
func code(text string) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestProgramTextsAreCompiled holds the documents to programs that compile: each block of Go
// stands, line by line, in an example or another file of the repository. A line of three dots
// stands for any others.
func TestProgramTextsAreCompiled(t *testing.T) {
	var sources []string
	for _, path := range filesOf(t, ".go") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, "\n"+strings.Join(code(string(text)), "\n")+"\n")
	}
	blocks := 0
	for _, path := range filesOf(t, ".md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(text), "```go\n") {
			if i == 0 {
				continue
			}
			block, _, _ := strings.Cut(part, "```")
			blocks++
			for _, passage := range strings.Split("\n"+strings.Join(code(block), "\n")+"\n", "\n...\n") {
				passage = "\n" + strings.Trim(passage, "\n") + "\n"
				found := false
				for _, s := range sources {
					found = found || strings.Contains(s, passage)
				}
				if !found {
					t.Errorf("%s has a program text that no file of the repository has:%s", strings.TrimPrefix(path, root+"/"), passage)
				}
			}
		}
	}
	if blocks < 8 {
		t.Errorf("%d program texts were found, which cannot be all", blocks)
	}
}
