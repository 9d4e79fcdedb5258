package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// proof is the name of a test, a fuzz target, a benchmark or a script.
var proof = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*\b|\b[a-z0-9_]+\.txtar\b`)

// TestProofsExist holds the documents to their proofs: each test that one names is there.
func TestProofsExist(t *testing.T) {
	there := map[string]bool{}
	var documents []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root:
			return filepath.SkipDir
		case strings.HasSuffix(path, ".txtar"):
			there[e.Name()] = true
		case strings.HasSuffix(path, ".md"):
			documents = append(documents, path)
		case strings.HasSuffix(path, "_test.go"):
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					there[fn.Name.Name] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range proof.FindAllString(string(text), -1) {
			if named++; !there[name] {
				t.Errorf("%s names %s, which is not there", strings.TrimPrefix(path, root+"/"), name)
			}
		}
	}
	if named < 30 {
		t.Errorf("%d names were found, which cannot be all", named)
	}
}
