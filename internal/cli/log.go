package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/filetree"
)

type logFlags struct {
	pageArg
	Limit     int    `flag:"limit,n" usage:"list at most this many (default: all)"`
	At        string `flag:"at" usage:"revision to start from (default HEAD)"`
	Heads     bool   `flag:"heads" usage:"start from every head"`
	Graph     bool   `flag:"graph" usage:"draw lines between commits, from every head"`
	Conflicts bool   `flag:"conflicts" usage:"show the decisions of merges"`
	Diff      bool   `flag:"diff" usage:"show the changes of each commit"`
	Oneline   bool   `flag:"oneline" usage:"print one line for each commit"`
	IDs       bool   `flag:"ids" usage:"print only ids"`
}

func (a *app) log(ctx context.Context, f logFlags) error {
	if a.json && (f.Graph || f.IDs) {
		return usagef("--json excludes --graph and --ids")
	}
	return a.page(ctx, f.Page, reads, func(page *ledger.Page) error {
		n, err := namesOf(ctx, page)
		if err != nil {
			return err
		}
		from := []ledger.CommitID{n.newest}
		switch {
		case f.At != "":
			if from[0], err = a.resolve(ctx, page, f.At); err != nil {
				return err
			}
		case f.Heads, f.Graph:
			from = nil
		}
		p := &logPrinter{app: a, page: page, names: n, flags: f}
		if f.Graph {
			p.graph = &graph[ledger.CommitID]{}
		}
		for c, err := range page.Log(ctx, from...) {
			if err != nil {
				return fmt.Errorf("read history: %w", err)
			}
			if c.Generation == 0 || f.Limit > 0 && p.count == f.Limit {
				break // the first commit is the last in the log
			}
			if err := p.print(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// logPrinter prints a history, one commit at a time.
type logPrinter struct {
	app    *app
	page   *ledger.Page
	names  names
	flags  logFlags
	graph  *graph[ledger.CommitID] // nil without --graph
	count  int
	beside string // drawing at the left of the empty line before the next commit
}

func (p *logPrinter) print(ctx context.Context, c ledger.Commit) error {
	sender, err := senderOf(ctx, p.page, c.ID)
	if err != nil {
		return err
	}
	if p.count++; p.app.json {
		p.app.emit(commitObject(c, sender, p.names))
		return errors.Join(p.conflicts(ctx, c, ""), p.diff(ctx, c))
	}
	text := []string{c.ID.String()}
	switch {
	case p.flags.IDs:
	case p.flags.Oneline:
		text = []string{onelineText(c, p.names)}
	default:
		if text = commitText(c, sender, p.names); p.count > 1 {
			p.line(p.beside, "")
		}
	}
	indent := ""
	if p.graph != nil {
		drawing := p.graph.next(c.ID, shownParents(c))
		if drawing.gap && p.flags.Oneline {
			p.line(drawing.above, "")
		}
		text = drawing.beside(text)
		p.beside = drawing.rest
		indent = drawing.rest + strings.Repeat(" ", drawing.width-len(drawing.rest)+1)
	}
	for _, line := range text {
		p.line("", line)
	}
	return errors.Join(p.conflicts(ctx, c, indent), p.diff(ctx, c))
}

// diff prints the changes of a commit below it.
func (p *logPrinter) diff(ctx context.Context, c ledger.Commit) error {
	if !p.flags.Diff {
		return nil
	}
	p.app.printIf(!p.app.json && !p.flags.Oneline, "\n")
	parent, err := p.page.Resolve(ctx, c.ID.String()+"~1")
	if errors.Is(err, ledger.ErrGone) {
		p.app.printIf(!p.app.json, "older history was given up\n")
		return nil
	}
	if err != nil {
		return fmt.Errorf("find parent of %s: %w", c.ID.Short(), err)
	}
	return p.app.printDiff(ctx, filetree.Diff(ctx, p.page, parent, c.ID, nil), func() {})
}

// shownParents returns the parents of a commit that log lists; the implied first commit is not
// listed.
func shownParents(c ledger.Commit) []ledger.CommitID {
	if c.Generation <= 1 {
		return nil
	}
	return c.Parents
}

func (p *logPrinter) line(beside, text string) {
	p.app.printf("%s\n", strings.TrimRight(beside+text, " "))
}

// decoration is the names of a commit, in the form that follows its id.
func decoration(id ledger.CommitID, n names) string {
	called := n.of(id)
	return choose(len(called) > 0, " ("+strings.Join(called, ", ")+")", "")
}

// onelineText describes a commit in one line.
func onelineText(c ledger.Commit, n names) string {
	return strings.TrimRight(c.ID.Short()+decoration(c.ID, n)+c.Time.UTC().Format(" 2006-01-02 15:04:05 ")+title(c), " ")
}

// title is the first line of the message; "merge" for a merge without a message.
func title(c ledger.Commit) string {
	first, _, _ := strings.Cut(c.Message, "\n")
	return cmp.Or(printable(first), choose(len(c.Parents) > 1, "merge", ""))
}

// senderText names the device that put a commit into the log of the cloud.
func senderText(s admin.Sender) string {
	return s.Device[:shortID] + choose(s.Verified, "", ", according to a checkpoint")
}

// commitText describes a commit in full.
func commitText(c ledger.Commit, s admin.Sender, n names) []string {
	text := []string{"commit " + c.ID.String() + decoration(c.ID, n)}
	if len(c.Parents) > 1 {
		text = append(text, fmt.Sprintf("Merge:  %s %s", c.Parents[0].Short(), c.Parents[1].Short()))
	}
	text = append(text, "Date:   "+timeText(c.Time))
	if c.Device != "" {
		text = append(text, "Device: "+printable(c.Device))
	}
	if s.Device != "" {
		text = append(text, "Sender: "+senderText(s))
	}
	if c.Message != "" {
		text = append(text, "")
		for line := range strings.SplitSeq(strings.TrimRight(c.Message, "\n"), "\n") {
			text = append(text, strings.TrimRight("    "+printable(line), " "))
		}
	}
	return text
}

// conflicts prints the decisions of a merge below it.
func (p *logPrinter) conflicts(ctx context.Context, c ledger.Commit, indent string) error {
	if !p.flags.Conflicts || len(c.Parents) < 2 {
		return nil
	}
	return p.app.printConflicts(ctx, p.page, c.ID, indent+"    ")
}
