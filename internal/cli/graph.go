package cli

import (
	"slices"
	"strings"
)

// graph draws a history beside the text of its commits. Commits arrive in the order of commit.Walk:
// each before its parents. A column is a line down to a commit that is not drawn yet. No two
// columns lead to the same commit.
//
// An asterisk is a commit, | a line that goes on; / and \ are lines that move by one column. A
// moving line crosses others diagonally: in |/| the middle stroke continues the / at its upper
// right.
type graph[ID comparable] struct {
	columns []ID
	ended   int // column of the previous commit plus one if that has no parent, else 0
}

// rows is the drawing of one commit: the commit, then lines below it that move. rest is the drawing
// beside further lines of text.
type rows struct {
	// gap reports that the commit stands directly below a commit that is not its child. The line
	// above then has to separate them.
	gap   bool
	above string
	drawn []string
	rest  string
	width int // of the widest row
}

// next draws a commit. parents are those of its parents that are shown.
func (g *graph[ID]) next(id ID, parents []ID) rows {
	r := rows{above: string(g.lines())}
	k := g.find(id)
	if k < 0 {
		k = len(g.columns)
		g.columns = append(g.columns, id)
		r.gap = g.ended == k+1
	}
	g.ended = 0
	line := g.lines()
	line[2*k] = '*'
	r.add(line)
	if len(parents) == 0 {
		g.drop(&r, k)
		g.ended = k + 1
	} else {
		g.descend(&r, k, parents)
	}
	r.rest = string(g.lines())
	r.width = max(r.width, len(r.rest))
	return r
}

// descend connects the commit in column k to its parents.
func (g *graph[ID]) descend(r *rows, k int, parents []ID) {
	first := parents[0]
	for _, p := range parents[1:] {
		if first == p {
			continue
		}
		if g.find(first) >= 0 && g.find(p) < 0 {
			first, p = p, first // column k goes to the parent that has no column yet
		}
		if t := g.find(p); t >= 0 {
			g.reach(r, k, t)
		} else {
			g.branch(r, k, p)
		}
	}
	t := g.find(first)
	g.columns[k] = first
	if t >= 0 {
		g.join(r, min(k, t), max(k, t))
	}
}

// branch begins a line to p in a new column to the right of k.
func (g *graph[ID]) branch(r *rows, k int, p ID) {
	line := blank(2*len(g.columns) + 1)
	for i := range g.columns {
		if i <= k {
			line[2*i] = '|'
		}
		if i >= k {
			line[2*i+1] = '\\'
		}
	}
	r.add(line)
	g.columns = slices.Insert(g.columns, k+1, p)
}

// reach draws a line from column k to column t. Both columns continue.
func (g *graph[ID]) reach(r *rows, k, t int) {
	for i := k; i < t; i++ {
		line := g.lines()
		line[2*i+1] = '\\'
		r.add(line)
	}
	for i := k; i > t; i-- {
		line := g.lines()
		line[2*i-1] = '/'
		r.add(line)
	}
}

// join ends column from in column to, on its left, and closes the gap.
func (g *graph[ID]) join(r *rows, to, from int) {
	line := g.lines()
	for i := from; i < len(g.columns); i++ {
		line[2*i-1], line[2*i] = '/', ' '
	}
	r.add(line)
	g.columns = slices.Delete(g.columns, from, from+1)
	for i := from - 1; i > to; i-- {
		line := g.lines()
		line[2*i-1] = '/'
		r.add(line)
	}
}

// drop ends column k and closes the gap.
func (g *graph[ID]) drop(r *rows, k int) {
	line := g.lines()
	line[2*k] = ' '
	for i := k + 1; i < len(g.columns); i++ {
		line[2*i-1], line[2*i] = '/', ' '
	}
	if k+1 < len(g.columns) {
		r.add(line)
	}
	g.columns = slices.Delete(g.columns, k, k+1)
}

func (g *graph[ID]) find(id ID) int { return slices.Index(g.columns, id) }

// lines returns a row in which every column continues straight down.
func (g *graph[ID]) lines() []byte {
	line := blank(max(2*len(g.columns)-1, 0))
	for i := range g.columns {
		line[2*i] = '|'
	}
	return line
}

func (r *rows) add(line []byte) {
	r.drawn = append(r.drawn, string(line))
	r.width = max(r.width, len(line))
}

func blank(n int) []byte { return []byte(strings.Repeat(" ", n)) }

// beside returns the drawing with one or more lines of text at its right.
func (r rows) beside(text []string) []string {
	var out []string
	for i := range max(len(text), len(r.drawn)) {
		line := r.rest
		if i < len(r.drawn) {
			line = r.drawn[i]
		}
		if i < len(text) {
			line += strings.Repeat(" ", r.width-len(line)+1) + text[i]
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return out
}
