package lint

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = "../.."

// maxSuppressions bounds how many findings of linters the whole repository may silence.
const maxSuppressions = 20

// ban is a form that must not stand in the source.
type ban struct {
	form   *regexp.Regexp
	except []string // prefixes of paths where it may
	tests  bool     // holds in tests too
	reason string
}

var bans = []ban{
	{regexp.MustCompile(`\btime\.(Now|Since|Until|Sleep|After|Tick|NewTimer|NewTicker)\(`), []string{"internal/clock/", "examples/"}, false, "time comes from internal/clock"},
	{regexp.MustCompile(`\btime\.Sleep\(`), []string{"internal/clock/"}, true, "no sleeping, in tests either"},
	{regexp.MustCompile(`"math/rand"`), nil, false, "randomness is injected"},
	{regexp.MustCompile(`\brand\.(Int|IntN|N|Uint32|Uint64|Float64|Perm|Shuffle|Int64|Uint64N)\(`), nil, false, "randomness is injected"},
	{regexp.MustCompile(`\blog\.(Fatal|Panic|Print)`), []string{"example_test.go"}, true, "errors are returned; logs go to slog"},
	{regexp.MustCompile(`"(fail|Fail)ed to `), nil, true, "an error says what was being done"},
	{regexp.MustCompile(`context\.TODO\(`), nil, true, "every call that can wait has a context"},
	{regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`), []string{"internal/lint/"}, true, "finish it, or say in docs that it is not there"},
}

var suppression = regexp.MustCompile(`//(nolint|lint:ignore|#nosec)`)

func TestForms(t *testing.T) {
	suppressed := 0
	sources(t, func(path string, lines []string) {
		isTest := strings.HasSuffix(path, "_test.go")
		for i, line := range lines {
			if suppression.MatchString(line) && !strings.HasPrefix(path, "internal/lint/") {
				suppressed++
			}
			code := line
			for _, b := range bans {
				if isTest && !b.tests || excepted(path, b.except) || strings.HasPrefix(path, "internal/lint/") {
					continue
				}
				if b.form.MatchString(code) && !strings.HasPrefix(strings.TrimSpace(code), "//") {
					t.Errorf("%s:%d: %s: %s", path, i+1, strings.TrimSpace(line), b.reason)
				}
			}
		}
	})
	if suppressed > maxSuppressions {
		t.Errorf("%d suppressions of linters, limit %d", suppressed, maxSuppressions)
	}
}

func TestFileSizes(t *testing.T) {
	sources(t, func(path string, lines []string) {
		if len(lines) > 800 {
			t.Errorf("%s has %d lines, limit 800", path, len(lines))
		}
	})
}

// commentWidth is how many columns a comment may take, with four for a tab.
const commentWidth = 100

func TestCommentWidth(t *testing.T) {
	sources(t, func(path string, lines []string) {
		for i, line := range lines {
			wide := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > commentWidth
			if wide && strings.HasPrefix(strings.TrimSpace(line), "//") && !strings.Contains(line, "://") && !strings.HasPrefix(strings.TrimSpace(line), "//go:") {
				t.Errorf("%s:%d: a comment above %d columns", path, i+1, commentWidth)
			}
		}
	})
}

func TestExportedNamesHaveDocs(t *testing.T) {
	sources(t, func(path string, _ []string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: %s is exported and has no doc comment", path, name)
			}
		}
	})
}

func undocumented(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || exportedReceiver(d.Recv)) && !wellKnown[d.Name.Name] {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// wellKnown methods say what they do by implementing an interface of the standard library.
var wellKnown = map[string]bool{"Error": true, "Len": true, "Less": true, "Swap": true, "Push": true, "Pop": true, "Unwrap": true, "Write": true, "Read": true}

func exportedReceiver(r *ast.FieldList) bool {
	typ := r.List[0].Type
	if s, ok := typ.(*ast.StarExpr); ok {
		typ = s.X
	}
	if x, ok := typ.(*ast.IndexExpr); ok {
		typ = x.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

func TestPackagesHaveDocs(t *testing.T) {
	dirs := map[string]bool{}
	sources(t, func(path string, _ []string) {
		dir := filepath.Dir(path)
		if !strings.HasSuffix(path, "_test.go") {
			dirs[dir] = dirs[dir] || filepath.Base(path) == "doc.go" || filepath.Base(path) == "main.go" || filepath.Base(path) == "clock.go" || filepath.Base(path) == "limits.go"
		}
	})
	for dir, ok := range dirs {
		if !ok {
			t.Errorf("package %s has no doc.go", dir)
		}
	}
}

func excepted(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

// sources calls fn for every Go file of the repository that was not generated.
func sources(t *testing.T, fn func(path string, lines []string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "gen" || d.Name() == "testdata" || rel == "data" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		var lines []string
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			lines = append(lines, sc.Text())
		}
		if err := sc.Err(); err != nil {
			return err
		}
		fn(filepath.ToSlash(rel), lines)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
