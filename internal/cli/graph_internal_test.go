package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// drawnCommit is a commit of a history in a test: parents are those with an edge.
type drawnCommit struct {
	name    string
	parents []string
}

// history reads "c:a,b" as commit c with parents a and b.
func history(text string) []drawnCommit {
	var all []drawnCommit
	for _, field := range strings.Fields(text) {
		name, parents, _ := strings.Cut(field, ":")
		c := drawnCommit{name: name}
		if parents != "" {
			c.parents = strings.Split(parents, ",")
		}
		all = append(all, c)
	}
	return all
}

func drawing(history []drawnCommit, text func(drawnCommit) []string) []string {
	var g graph[string]
	var lines []string
	for _, c := range history {
		rows := g.next(c.name, c.parents)
		if rows.gap {
			lines = append(lines, rows.above)
		}
		lines = append(lines, rows.beside(text(c))...)
	}
	return lines
}

func TestGraphGolden(t *testing.T) {
	for _, c := range []struct{ name, history string }{
		{"chain", "c:b b:a a"},
		{"fork", "c:a b:a a"},
		{"merge", "d:b,c c:a b:a a"},
		{"merge-newer-first", "d:c,b c:a b:a a"},
		{"roots", "e:d,c d:b c b a"},
		{"roots-in-the-middle", "d:c,b c b:a a"},
		{"criss-cross", "g:e,f f:c,d e:c,d d:a c:b b:a a"},
		{"five-heads", "f:a e:a d:a c:a b:a a"},
		{"five-heads-merged", "m4:m3,f m3:m2,e m2:m1,d m1:b,c f:a e:a d:a c:a b:a a"},
		{"five-heads-merged-backwards", "m4:f,m3 m3:e,m2 m2:d,m1 m1:c,b f:a e:a d:a c:a b:a a"},
		{"merge-of-far-columns", "h:a g:b f:c i:a,c c:b b:a a"},
		{"merge-into-both-sides", "h:a g:b f:c i:h2,a h2:c c:b b:a a"},
		{"same-parent-twice", "c:a,a b:a a"},
		{"two-devices", "m3:m1,m2 m2:x2,y1 m1:x1,y2 x2:x1 y2:y1 x1:a y1:a a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := history(c.history)
			got := strings.Join(drawing(all, func(c drawnCommit) []string { return []string{c.name} }), "\n") + "\n\n" +
				strings.Join(drawing(all, func(c drawnCommit) []string { return []string{c.name, "parents " + strings.Join(c.parents, " "), ""} }), "\n") + "\n"
			path := filepath.Join("testdata", "graph", c.name+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("drawing differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Whoever follows the lines of a drawing finds the parents of every commit, whatever the history.
func TestGraphSaysTheEdges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "commits")
		all := make([]drawnCommit, n) // children first
		for i := range all {
			all[i].name = fmt.Sprint(n - i)
			older := n - 1 - i
			for range min(older, rapid.IntRange(0, 2).Draw(t, "parents")) {
				if p := fmt.Sprint(rapid.IntRange(1, older).Draw(t, "parent")); !slices.Contains(all[i].parents, p) {
					all[i].parents = append(all[i].parents, p)
				}
			}
		}
		lines := drawing(all, func(c drawnCommit) []string { return []string{c.name} })
		got, err := follow(lines)
		if err != nil {
			t.Fatalf("%v in\n%s", err, strings.Join(lines, "\n"))
		}
		for _, c := range all {
			want, found := slices.Sorted(slices.Values(c.parents)), slices.Sorted(slices.Values(got[c.name]))
			if !slices.Equal(want, found) {
				t.Fatalf("commit %s has parents %q, and in the drawing %q:\n%s", c.name, want, found, strings.Join(lines, "\n"))
			}
		}
	})
}

// stroke is a line that has moved to a place, in the direction of the character.
type stroke struct {
	to        int
	character byte
}

// follow reads a drawing as a person does and returns the parents of each commit: | goes straight
// down, a / or \ takes a whole line with it when none stands where it comes from, goes on with one
// that came from there in the row above, and is else a line of the last commit.
func follow(lines []string) (map[string][]string, error) {
	parents := map[string][]string{}
	down := map[int][]string{}      // the children whose lines come down at a place, into the row
	moving := map[stroke][]string{} // those that have just moved
	last := ""
	for _, line := range lines {
		drawn, name := split(line)
		next, nextMoving := map[int][]string{}, map[stroke][]string{}
		for i := range len(drawn) {
			ch := drawn[i]
			from := i + 1
			if ch == '\\' {
				from = i - 1
			}
			if who, ok := moving[stroke{from, ch}]; ok && (ch == '/' || ch == '\\') {
				nextMoving[stroke{2*i - from, ch}] = who
				delete(moving, stroke{from, ch})
			}
		}
		for s, who := range moving {
			down[s.to] = append(down[s.to], who...)
		}
		for i := range len(drawn) {
			ch := drawn[i]
			from := i + 1
			if ch == '\\' {
				from = i - 1
			}
			to := stroke{2*i - from, ch}
			switch {
			case ch == '*':
				parents[name] = nil
				for _, child := range down[i] {
					parents[child] = append(parents[child], name)
				}
				last, next[i] = name, []string{name}
			case ch == '|':
				next[i] = down[i]
			case ch == ' ' || nextMoving[to] != nil:
			case from < len(drawn) && drawn[from] == '|':
				nextMoving[to] = []string{last}
			case len(down[from]) == 0:
				return nil, fmt.Errorf("nothing comes down at %d of %q", from, line)
			default:
				nextMoving[to] = down[from]
			}
		}
		down, moving = next, nextMoving
	}
	for child, all := range parents {
		slices.Sort(all)
		parents[child] = slices.Compact(all)
	}
	return parents, nil
}

// split divides a line into the drawing and the name.
func split(line string) (drawn, name string) {
	i := strings.LastIndexAny(line, "*|/\\") + 1
	return line[:i], strings.TrimSpace(line[i:])
}
