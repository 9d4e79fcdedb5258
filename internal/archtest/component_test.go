package archtest

import (
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRootFilesCallEachOther asks that no two files of the root package reach each other by calls,
// where a file calls another when it uses a function or method that is declared there. Calls
// through interfaces do not count.
func TestRootFilesCallEachOther(t *testing.T) {
	graph := callsBetweenFiles(t)
	if len(graph) < 20 {
		t.Errorf("%d files of the root were found, which cannot be all", len(graph))
	}
	if component := largestComponent(graph); len(component) > 0 {
		t.Errorf("%d files of the root call each other in one component: %v", len(component), component)
	}
}

// callsBetweenFiles returns which files of the root use functions of which others.
func callsBetweenFiles(t *testing.T) map[string]map[string]bool {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	export := map[string]string{}
	for _, p := range listExports(t) {
		if export[p.ImportPath] = p.Export; p.ImportPath != module {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(export[path]) }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
	if _, err := conf.Check(module, fset, files, info); err != nil {
		t.Fatal(err)
	}
	file := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	graph := map[string]map[string]bool{}
	for _, f := range files {
		graph[file(f.Pos())] = map[string]bool{}
	}
	for id, o := range info.Uses {
		if fn, ok := o.(*types.Func); ok && fn.Pkg() != nil && fn.Pkg().Path() == module {
			if from, to := file(id.Pos()), file(fn.Origin().Pos()); from != to {
				graph[from][to] = true
			}
		}
	}
	return graph
}

type exported struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listExports returns the root package and all that it imports, with the files of their types.
func listExports(t *testing.T) (all []exported) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", module)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p exported
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// largestComponent returns the largest set of nodes of which each reaches each other, sorted.
func largestComponent(graph map[string]map[string]bool) (largest []string) {
	reach := map[string]map[string]bool{}
	var walk func(from, at string)
	walk = func(from, at string) {
		for to := range graph[at] {
			if !reach[from][to] {
				reach[from][to] = true
				walk(from, to)
			}
		}
	}
	for n := range graph {
		reach[n] = map[string]bool{}
		walk(n, n)
	}
	for n := range graph {
		var component []string
		for m := range reach[n] {
			if reach[m][n] {
				component = append(component, m)
			}
		}
		if len(component) > len(largest) {
			largest = component
		}
	}
	slices.Sort(largest)
	return largest
}
