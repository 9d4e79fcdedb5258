package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/filetree"
	"github.com/spf13/cobra"
)

type logFlags struct {
	at                  string
	limit               int
	heads, ids, oneline bool
	graph, conflicts    bool
	diff, stat          bool
}

func (a *app) logCommand() *cobra.Command {
	var f logFlags
	cmd := a.define("log", flagged(&f, a.log))
	flags := cmd.Flags()
	addLimit(cmd, &f.limit, "list no more than this many (default: all)")
	flags.StringVar(&f.at, "at", "", "revision to start from (default HEAD)")
	flags.BoolVar(&f.heads, "heads", false, "start from every head")
	flags.BoolVar(&f.graph, "graph", false, "draw the lines between commits; starts from every head")
	flags.BoolVar(&f.conflicts, "conflicts", false, "show what merges have decided")
	flags.BoolVar(&f.diff, "diff", false, "show what each commit changed")
	flags.BoolVar(&f.stat, "stat", false, "show what each commit changed, with sizes and a summary")
	flags.BoolVar(&f.oneline, "oneline", false, "print a line for each commit")
	flags.BoolVar(&f.ids, "ids", false, "print the ids alone")
	cmd.MarkFlagsMutuallyExclusive("at", "heads")
	for _, other := range []string{"oneline", "graph", "conflicts", "diff", "stat"} {
		cmd.MarkFlagsMutuallyExclusive("ids", other)
	}
	cmd.MarkFlagsMutuallyExclusive("graph", "diff")
	cmd.MarkFlagsMutuallyExclusive("graph", "stat")
	return cmd
}

func (a *app) log(ctx context.Context, cmd *cobra.Command, args []string, f logFlags) error {
	switch {
	case a.json && (f.graph || f.ids):
		return usagef(cmd, "--json excludes --graph and --ids")
	}
	return a.page(ctx, cmd, args[0], reads, func(page *ledger.Page) error {
		n, err := namesOf(ctx, page)
		if err != nil {
			return err
		}
		from := []ledger.CommitID{n.newest}
		switch {
		case f.at != "":
			if from[0], err = a.resolve(ctx, page, f.at); err != nil {
				return err
			}
		case f.heads, f.graph:
			from = nil
		}
		p := a.newLogPrinter(page, n, f)
		for c, err := range page.Log(ctx, from...) {
			if err != nil {
				return fmt.Errorf("read history: %w", err)
			}
			if c.IsFirst() || f.limit > 0 && p.count == f.limit {
				break // the first commit comes last
			}
			if err := p.print(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// logPrinter prints a history, each commit as it comes.
type logPrinter struct {
	app    *app
	page   *ledger.Page
	names  names
	flags  logFlags
	graph  *graph[ledger.CommitID] // nil without --graph
	count  int
	beside string // what stands at the left of the empty line before the next commit
}

func (a *app) newLogPrinter(page *ledger.Page, n names, f logFlags) *logPrinter {
	p := &logPrinter{app: a, page: page, names: n, flags: f}
	if f.graph {
		p.graph = &graph[ledger.CommitID]{}
	}
	return p
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
	case p.flags.ids:
	case p.flags.oneline:
		text = []string{onelineText(c, p.names)}
	default:
		if text = commitText(c, sender, p.names); p.count > 1 {
			p.line(p.beside, "")
		}
	}
	indent := ""
	if p.graph != nil {
		drawing := p.graph.next(c.ID, shownParents(c))
		if drawing.gap && p.flags.oneline {
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

// diff prints below a commit what it changed.
func (p *logPrinter) diff(ctx context.Context, c ledger.Commit) error {
	if !p.flags.diff && !p.flags.stat {
		return nil
	}
	parent, err := p.page.Resolve(ctx, c.ID.String()+"~1")
	if err != nil {
		return fmt.Errorf("find parent of %s: %w", c.ID.Short(), err)
	}
	if !p.app.json && !p.flags.oneline {
		p.app.printf("\n")
	}
	return p.app.printDiff(filetree.Diff(ctx, p.page, parent, c.ID, nil), p.flags.stat)
}

// shownParents returns the parents of a commit that log lists: the implied first commit is none.
func shownParents(c ledger.Commit) []ledger.CommitID {
	if c.Generation <= 1 {
		return nil
	}
	return c.Parents
}

func (p *logPrinter) line(beside, text string) {
	p.app.printf("%s\n", strings.TrimRight(beside+text, " "))
}

// decoration is what a commit is called, as it stands behind its id.
func decoration(id ledger.CommitID, n names) string {
	called := n.of(id)
	if len(called) == 0 {
		return ""
	}
	return " (" + strings.Join(called, ", ") + ")"
}

// onelineText describes a commit in one line.
func onelineText(c ledger.Commit, n names) string {
	text := c.ID.Short() + decoration(c.ID, n) + c.Time.UTC().Format(" 2006-01-02 15:04:05 ")
	if title := title(c); title != "" {
		text += title
	} else if len(c.Parents) > 1 {
		text += "merge"
	}
	return strings.TrimRight(text, " ")
}

// title is the first line of the message.
func title(c ledger.Commit) string {
	first, _, _ := strings.Cut(c.Message, "\n")
	return printable(first)
}

// senderText names the device that put a commit into the log of the cloud.
func senderText(s admin.Sender) string {
	if s.Verified {
		return s.Device[:shortID]
	}
	return s.Device[:shortID] + ", as a checkpoint says"
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

// conflicts prints below a merge what it has decided.
func (p *logPrinter) conflicts(ctx context.Context, c ledger.Commit, indent string) error {
	if !p.flags.conflicts || len(c.Parents) < 2 {
		return nil
	}
	return p.app.printConflicts(ctx, p.page, c.ID, indent+"    ")
}
