package cli

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

type lsFlags struct {
	Pages   []string `arg:"..."` // a page and a prefix, or a ledger
	At      string   `flag:"at" usage:"revision to read (default HEAD)"`
	Long    bool     `flag:"long,l" usage:"show mode, size, time and target; for pages, id, size and time"`
	Raw     bool     `flag:"raw" usage:"list every entry, including attributes"`
	Reverse bool     `flag:"reverse" usage:"list in reverse order"`
	Limit   int      `flag:"limit,n" usage:"list at most this many (default: all)"`

	prefix []byte
}

// lsPages lists the pages of the repository or of a ledger.
func (a *app) lsPages(ctx context.Context, f lsFlags) error {
	for _, name := range []string{"at", "raw", "reverse", "limit"} {
		if a.changed(name) {
			return usagef("--%s needs a page: name one", name)
		}
	}
	var set pageSet
	for _, text := range f.Pages {
		if err := set.read(a, text); err != nil {
			return err
		}
	}
	return a.read(ctx, func(repo *ledger.Repository) error {
		pages, err := repo.Pages(ctx)
		if err != nil {
			return fmt.Errorf("list pages: %w", err)
		}
		pages = slices.DeleteFunc(pages, func(p ledger.PageInfo) bool { return !set.has(p.PageRef) })
		if len(pages) == 0 && set.some {
			return a.none(&set)
		}
		if a.json || f.Long {
			a.table(objects(pages, pageObject))
			return nil
		}
		for _, p := range pages {
			a.printf("%s\n", nameOf(p.Ledger, p.Name, p.ID))
		}
		return nil
	})
}

// pageObject is a page in lists.
func pageObject(p ledger.PageInfo) object {
	return object{
		"page", nameOf(p.Ledger, p.Name, p.ID), "ledger!", jsonBytes(p.Ledger), "name!?", jsonBytes(p.Name), "id", p.ID, "size", size(p.SizeBytes),
		"lastClosed?", p.LastClosed, "inCloudOnly", p.State == ledger.PageEvicted,
	}
}

func (a *app) ls(ctx context.Context, f lsFlags) error {
	if len(f.Pages) == 0 || len(f.Pages) == 1 && strings.HasSuffix(f.Pages[0], "/") {
		return a.lsPages(ctx, f)
	}
	name, err := parsePageName(f.Pages[0])
	if err != nil {
		return err
	}
	if f.prefix, err = a.key(append(f.Pages, "")[1]); err != nil {
		return err
	}
	return a.pageAt(ctx, name, reads, f.At, func(page *ledger.Page, snap *ledger.Snapshot) error {
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
}

// items lists the entries that ls prints.
func (a *app) items(ctx context.Context, snap *ledger.Snapshot, f lsFlags) iter.Seq2[filetree.Item, error] {
	if !f.Raw {
		return filetree.List(ctx, snap, filetree.ListOptions{
			Prefix: f.prefix, Reverse: f.Reverse, Limit: f.Limit, KeysOnly: !f.Long && !a.json,
		})
	}
	return func(yield func(filetree.Item, error) bool) {
		o := ledger.ScanOptions{Prefix: f.prefix, Reverse: f.Reverse, Limit: f.Limit, KeysOnly: true}
		for entry, err := range snap.Scan(ctx, o) {
			if !yield(filetree.Item{Entry: entry}, err) {
				return
			}
		}
	}
}

// maxTarget is the length in bytes of the longest link target that ls shows.
const maxTarget = 4096

func (a *app) lsItem(ctx context.Context, item filetree.Item, f lsFlags) error {
	var target []byte
	if isLink := item.Attributes != nil && item.Attributes.Type == filetree.Link; isLink && (a.json || f.Long) && item.Entry.Size <= maxTarget {
		var err error
		if target, err = item.Entry.Value(ctx); err != nil {
			return fmt.Errorf("read link %s: %w", a.shortKey(item.Entry.Key), err)
		}
	}
	switch {
	case a.json:
		a.emit(append(entryObject(item), "target?", jsonBytes(target)))
		return nil
	case !f.Long:
		a.printf("%s\n", a.keyText(item.Entry.Key))
		return nil
	}
	mode, time := "-", "-"
	if at := item.Attributes; at != nil {
		mode, time = at.String(), choose(at.Type != filetree.Directory, clockText(at.ModTime), "-")
	}
	bytes := sizeText(item.Entry.Size) + choose(item.Entry.Priority == ledger.Lazy, "z", "")
	key := a.keyText(item.Entry.Key) + choose(target != nil, " -> "+quoted(string(target)), "")
	a.printf("%-10s  %11s  %19s  %s\n", mode, bytes, time, key)
	return nil
}

// names are the names of the commits of a page.
type names struct {
	all    []ledger.Commit // the heads, the newest last
	newest ledger.CommitID
	heads  map[ledger.CommitID]bool
	tags   map[ledger.CommitID][]string
}

func namesOf(ctx context.Context, page *ledger.Page) (names, error) {
	n := names{heads: map[ledger.CommitID]bool{}, tags: map[ledger.CommitID][]string{}}
	heads, err := page.Heads(ctx)
	if err != nil {
		return n, fmt.Errorf("read heads: %w", err)
	}
	for _, h := range heads {
		n.heads[h.ID] = true
	}
	n.all, n.newest = heads, heads[len(heads)-1].ID
	tags, err := page.Tags(ctx)
	if err != nil {
		return n, fmt.Errorf("read tags: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		n.tags[tags[name]] = append(n.tags[tags[name]], name)
	}
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
	return append(all, objects(n.tags[id], func(t string) string { return "tag: " + quoted(t) })...)
}
