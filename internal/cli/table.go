package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// table is the columns of lines that are printed as they come.
type table []column

// column has its heading, and its width as fmt takes it: below 0 the text begins at the left.
type column struct {
	head  string
	width int
}

// heads prints the headings.
func (a *app) heads(t table) {
	cells := make([]any, len(t))
	for i, c := range t {
		cells[i] = c.head
	}
	if !a.json {
		a.printf("%s\n", t.line(cells...))
	}
}

// row prints j with --json, else a line of the table.
func (a *app) row(t table, j object, cells ...any) {
	if a.json {
		a.emit(j)
	} else {
		a.printf("%s\n", t.line(cells...))
	}
}

// line puts a cell into each column.
func (t table) line(cells ...any) string {
	texts := make([]string, len(t))
	for i, c := range t {
		texts[i] = fmt.Sprintf("%*v", c.width, cells[i])
	}
	return strings.Join(texts, "  ")
}

// widest is the width of a column of texts that begin at the left.
func widest(texts ...string) int {
	width := 0
	for _, text := range texts {
		width = max(width, utf8.RuneCountInString(text))
	}
	return -width
}
