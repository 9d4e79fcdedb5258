package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
	"github.com/spf13/cobra"
)

type lsFlags struct {
	at, start               string
	long, raw, reverse      bool
	keysOnly, hasStart      bool
	limit                   int
	prefix, startKey, bound []byte
}

func (a *app) lsCommand() *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:     "ls LEDGER/PAGE [PREFIX]",
		GroupID: groupKeys,
		Short:   "List keys",
		Long: `List the keys of a page in the order of their bytes, one a line. PREFIX limits them to those
that begin with it.

With -l each line has the mode (of imported files), the size in bytes, the modification
time, and the target of a link; a size followed by z is of a value with priority lazy.
An imported file is two entries of the page, content and attributes, and one line here;
--raw shows every entry by itself.

A key that is not printable is quoted as in Go or JSON; --hex and --json give every key exactly.`,
		Example: `  ledgerd ls src
  ledgerd ls src docs/ -l
  ledgerd ls src --at 2024-05-01
  ledgerd ls events --reverse --limit 10
  ledgerd ls src --json | jq -r .key`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completePages,
	}
	cmd.RunE = a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		f.hasStart = cmd.Flags().Changed("start")
		return a.ls(ctx, cmd, args, f)
	})
	flags := cmd.Flags()
	flags.StringVar(&f.at, "at", "", "revision to read (default HEAD)")
	flags.StringVar(&f.start, "start", "", "first key to list; with --reverse too, going down from it")
	flags.BoolVarP(&f.long, "long", "l", false, "show mode, size, time and target")
	flags.BoolVar(&f.raw, "raw", false, "list every entry, attributes by themselves")
	flags.BoolVar(&f.reverse, "reverse", false, "from the last key to the first")
	flags.BoolVar(&f.keysOnly, "keys-only", false, "with --json print the keys alone")
	flags.IntVar(&f.limit, "limit", 0, "list no more than this many (default: all)")
	a.completeFlag(cmd, "at", a.completeRevisionFlag)
	return cmd
}

func (a *app) ls(ctx context.Context, cmd *cobra.Command, args []string, f lsFlags) error {
	if f.limit < 0 {
		return usagef(cmd, "--limit is %d, want 0 or more", f.limit)
	}
	if f.keysOnly && f.long {
		return usagef(cmd, "--keys-only and --long exclude each other")
	}
	var err error
	if len(args) == 2 {
		if f.prefix, err = a.key(cmd, args[1]); err != nil {
			return err
		}
	}
	if f.hasStart {
		key, err := a.key(cmd, f.start)
		if err != nil {
			return err
		}
		if f.reverse {
			f.bound = append(key, 0) // the first key that does not come
		} else {
			f.startKey = key
		}
	}
	return a.page(ctx, cmd, args[0], reads, func(page *ledger.Page) error {
		return a.snapshot(ctx, page, f.at, func(snap *ledger.Snapshot) error {
			for item, err := range a.items(ctx, snap, f) {
				if err != nil {
					return fmt.Errorf("list keys: %w", err)
				}
				if err := a.lsItem(ctx, item, f); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// items lists what ls prints.
func (a *app) items(ctx context.Context, snap *ledger.Snapshot, f lsFlags) iter.Seq2[filetree.Item, error] {
	if !f.raw {
		return filetree.List(ctx, snap, filetree.ListOptions{
			Prefix: f.prefix, Start: f.startKey, End: f.bound, Reverse: f.reverse, Limit: f.limit, KeysOnly: !f.long && (!a.json || f.keysOnly),
		})
	}
	return func(yield func(filetree.Item, error) bool) {
		o := ledger.ScanOptions{Prefix: f.prefix, Start: f.startKey, End: f.bound, Reverse: f.reverse, Limit: f.limit, KeysOnly: true}
		for entry, err := range snap.Scan(ctx, o) {
			if !yield(filetree.Item{Entry: entry}, err) {
				return
			}
		}
	}
}

// maxTarget is the length of the longest link target that ls shows.
const maxTarget = 4096

func (a *app) lsItem(ctx context.Context, item filetree.Item, f lsFlags) error {
	if a.json && f.keysOnly {
		return a.emit(keyJSON{item.Entry.Key})
	}
	var target []byte
	if isLink := item.Attributes != nil && item.Attributes.Type == filetree.Link; isLink && (a.json || f.long) && item.Entry.Size <= maxTarget {
		var err error
		if target, err = item.Entry.Value(ctx); err != nil {
			return fmt.Errorf("read link %s: %w", a.shortKey(item.Entry.Key), err)
		}
	}
	switch {
	case a.json:
		j := newEntryJSON(item)
		if target != nil {
			j.Target = (*jsonBytes)(&target)
		}
		return a.emit(j)
	case !f.long:
		a.printf("%s\n", a.keyText(item.Entry.Key))
		return nil
	}
	mode, time, lazy := "-", "-", ' '
	if item.Attributes != nil {
		mode = item.Attributes.String()
		if item.Attributes.Type != filetree.Directory {
			time = item.Attributes.ModTime.UTC().Format("2006-01-02 15:04:05")
		}
	}
	if item.Entry.Priority == ledger.Lazy {
		lazy = 'z'
	}
	a.printf("%-10s %12d%c %19s  %s", mode, item.Entry.Size, lazy, time, a.keyText(item.Entry.Key))
	if target != nil {
		a.printf(" -> %s", quoted(string(target)))
	}
	a.printf("\n")
	return nil
}

// keyJSON is a key by itself as --json prints it.
type keyJSON struct {
	Key jsonBytes `json:"key"`
}

func (a *app) statCommand() *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:     "stat LEDGER/PAGE [KEY]",
		GroupID: groupKeys,
		Short:   "Describe a key or a page",
		Long: `Describe a key without reading its value: size, priority, the object that holds the value, and
the attributes of an imported file. Without KEY describe the page: its id, newest
commit, heads, tags, and what it takes on disk.`,
		Example: `  ledgerd stat src README.md
  ledgerd stat src README.md --at HEAD~3
  ledgerd stat src`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeKeys,
		RunE: a.run(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return a.page(ctx, cmd, args[0], reads, func(page *ledger.Page) error {
				if len(args) == 2 {
					return a.statKey(ctx, cmd, page, args[1], at)
				}
				return a.statPage(ctx, cmd, page, at)
			})
		}),
	}
	cmd.Flags().StringVar(&at, "at", "", "revision to read (default HEAD)")
	a.completeFlag(cmd, "at", a.completeRevisionFlag)
	return cmd
}

func (a *app) statKey(ctx context.Context, cmd *cobra.Command, page *ledger.Page, text, at string) error {
	key, err := a.key(cmd, text)
	if err != nil {
		return err
	}
	return a.snapshot(ctx, page, at, func(snap *ledger.Snapshot) error {
		item, err := filetree.Stat(ctx, snap, key)
		if err != nil {
			return a.noKey(page, key, at, err)
		}
		if item.Problem != nil {
			a.warn(fmt.Errorf("attributes of %s: %w", a.shortKey(key), item.Problem))
		}
		if a.json {
			return a.emit(newEntryJSON(item))
		}
		e := item.Entry
		a.printf("key       %s\nsize      %d\npriority  %s\n", a.keyText(e.Key), e.Size, e.Priority)
		if e.Inline {
			a.printf("object    inline in the tree\n")
		} else {
			a.printf("object    %s\n", e.Object)
		}
		if at := item.Attributes; at != nil {
			a.printf("type      %s\nmode      %s\n", at.Type, at)
			if at.Type != filetree.Directory {
				a.printf("modified  %s\n", timeText(at.ModTime))
			}
		}
		return nil
	})
}

// pageStatJSON is a page as stat --json prints it.
type pageStatJSON struct {
	Page         string     `json:"page"`
	Ledger       jsonBytes  `json:"ledger"`
	Name         *jsonBytes `json:"name,omitempty"`
	ID           string     `json:"id"`
	Heads        []string   `json:"heads"`
	Newest       commitJSON `json:"newest"`
	Segments     int        `json:"segments"`
	SegmentBytes int64      `json:"segmentBytes"`
	IndexBytes   int64      `json:"indexBytes"`
}

func (a *app) statPage(ctx context.Context, cmd *cobra.Command, page *ledger.Page, at string) error {
	if at != "" {
		return usagef(cmd, "--at needs a KEY; show describes a commit")
	}
	heads, err := page.Heads(ctx)
	if err != nil {
		return err
	}
	stats, err := page.Stats(ctx)
	if err != nil {
		return err
	}
	n, err := namesOf(ctx, page)
	if err != nil {
		return err
	}
	newest := heads[len(heads)-1]
	if a.json {
		j := pageStatJSON{
			Page: pageText(page), Ledger: jsonBytes(page.Ledger().Name()), ID: page.ID().String(), Newest: newCommitJSON(newest, n),
			Segments: stats.Segments, SegmentBytes: stats.SegmentBytes, IndexBytes: stats.IndexBytes,
		}
		if name := jsonBytes(page.Name()); len(name) > 0 {
			j.Name = &name
		}
		for _, h := range heads {
			j.Heads = append(j.Heads, h.ID.String())
		}
		return a.emit(j)
	}
	a.printf("page        %s\nid          %s\nnewest      %s (%s, generation %d)\n", pageText(page), page.ID(), newest.ID, timeText(newest.Time), newest.Generation)
	a.printf("heads       %d\ntags        %d\n", len(heads), n.count)
	a.printf("log         %s in %s\nindex       %s\n", sizeText(stats.SegmentBytes), countText(stats.Segments, "segment"), sizeText(stats.IndexBytes))
	return nil
}

// names are what commits of a page are called.
type names struct {
	newest ledger.CommitID
	heads  map[ledger.CommitID]bool
	tags   map[ledger.CommitID][]string
	count  int
}

func namesOf(ctx context.Context, page *ledger.Page) (names, error) {
	n := names{heads: map[ledger.CommitID]bool{}, tags: map[ledger.CommitID][]string{}}
	heads, err := page.Heads(ctx)
	if err != nil {
		return n, fmt.Errorf("read heads: %w", err)
	}
	if len(heads) == 0 {
		return n, errors.New("read heads: there is none")
	}
	for _, h := range heads {
		n.heads[h.ID] = true
	}
	n.newest = heads[len(heads)-1].ID
	tags, err := page.Tags(ctx)
	if err != nil {
		return n, fmt.Errorf("read tags: %w", err)
	}
	for _, t := range tags {
		n.tags[t.Commit] = append(n.tags[t.Commit], t.Name)
	}
	n.count = len(tags)
	return n, nil
}

// of returns the names of a commit, HEAD first.
func (n names) of(id ledger.CommitID) []string {
	var all []string
	switch {
	case id == n.newest:
		all = append(all, "HEAD")
	case n.heads[id]:
		all = append(all, "head")
	}
	tags := slices.Clone(n.tags[id])
	for i, t := range tags {
		tags[i] = "tag: " + quoted(t)
	}
	return append(all, tags...)
}
