package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
	"github.com/ledgerd/ledger/internal/spool"
)

// busyPause is the pause of watch after another process has held the repository for longer than
// --lock-timeout.
const busyPause = 200 * time.Millisecond

// fromNone is the value of --from that means the empty page.
const fromNone = "none"

type watchFlags struct {
	pageArg
	Prefix prefix `flag:"prefix" usage:"only keys that begin with this"`
	From   string `flag:"from" usage:"revision to start after, or none (default HEAD)"`
	Limit  int    `flag:"limit,n" usage:"stop after this many notifications (default: never)"`
}

// maxPending is the number of bytes of one notification that are kept in memory. A longer one waits
// in a temporary file until it is printed.
const maxPending = 1 << 20

// watcher is the state of a watch between its looks at the page. Findings are printed after the
// repository is closed: the reader of the output may be slow, and may write to the page.
type watcher struct {
	app    *app
	name   pageName
	prefix []byte
	limit  int
	count  int // of notifications

	begin   string // revision to start from; "" is HEAD, or fromNone once the page was found absent
	absent  bool   // the user was informed that the page does not exist
	started bool
	from    ledger.CommitID // once started: the next notification begins after it
}

func (a *app) watch(ctx context.Context, f watchFlags) error {
	w := &watcher{app: a, name: f.Page, prefix: f.Prefix.bytes, limit: f.Limit, begin: f.From}
	err := w.watch(ctx)
	switch ended := ctx.Err(); {
	case ended == nil || !errors.Is(err, ended):
		return err
	case errors.Is(context.Cause(ctx), errServeStops):
		return w.cutOff()
	}
	return nil // an interrupt is the normal end
}

// cutOff returns the error of a watch that ends because its serve stops.
func (w *watcher) cutOff() error {
	words := []string{"watch", w.name.text}
	if w.started {
		words = append(words, "--from", w.from.String())
	}
	return withHint(fmt.Errorf("watch page %s: %w", w.name.text, errServeStops), "%s continues", w.app.command(words...))
}

// watch looks at the page whenever another process has written to the repository. In a serve, the
// library reports changes.
func (w *watcher) watch(ctx context.Context) (err error) {
	var writers *fsnotify.Watcher
	defer func() {
		if writers != nil {
			err = errors.Join(err, writers.Close())
		}
	}()
	for {
		err := w.look(ctx)
		busy := errors.Is(err, ledger.ErrLocked)
		if err != nil && !busy || w.limit > 0 && w.count >= w.limit {
			return err
		}
		switch {
		case busy:
			err = pause(ctx, w.app.process.Clock, busyPause)
		case w.app.process.served != nil:
			err = w.awaitNews(ctx, w.app.process.served)
		case writers == nil: // one more look finds what was written before the watch began
			writers, err = watchWriters(w.app.dir)
		default:
			err = awaitWriter(ctx, writers)
		}
		if err != nil {
			return err
		}
	}
}

// watchWriters watches the directory of a repository. A process that opens the repository for
// writing makes a file there, and removes it before it releases the lock
// (docs/format/repository.md).
func watchWriters(dir string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(dir); err == nil {
			return w, nil
		}
		err = errors.Join(err, w.Close())
	}
	return nil, fmt.Errorf("watch the directory of the repository: %w", err)
}

// awaitWriter waits until a process begins or ends writing to the repository.
func awaitWriter(ctx context.Context, w *fsnotify.Watcher) error {
	for {
		select {
		case e := <-w.Events:
			if e.Has(fsnotify.Create) || e.Has(fsnotify.Write) || e.Has(fsnotify.Remove) {
				return nil
			}
		case err := <-w.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				return nil
			}
			return fmt.Errorf("watch the directory of the repository: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitNews waits until the page exists, and then for a change below the prefix after w.from. It
// advances w.from past commits without such a change.
func (w *watcher) awaitNews(ctx context.Context, repo *ledger.Repository) error {
	if !w.started {
		for change, err := range repo.WatchPages(ctx) {
			if err != nil || change.State != ledger.PageDeleted && change.PageRef == w.name.ref() {
				return err
			}
		}
	}
	return w.app.pageIn(ctx, repo, w.name, reads, func(page *ledger.Page) error {
		for n, err := range page.Watch(ctx, &ledger.WatchOptions{From: w.from, Prefix: w.prefix, PageEntries: 1}) {
			if err == nil {
				w.from = n.Base
			}
			return err
		}
		return nil
	})
}

// waiting reports, once, that the page does not exist.
func (w *watcher) waiting() {
	if !w.absent {
		w.app.tell("waiting for page %s", w.name.text)
	}
	w.absent, w.begin = true, cmp.Or(w.begin, fromNone)
}

// again returns the flags with which a newly started serve continues the watch. A notification that
// was found in part begins again.
func (w *watcher) again() []string {
	var flags []string
	switch {
	case w.started:
		flags = append(flags, "--from="+w.from.String())
	case w.begin == fromNone:
		flags = append(flags, "--from="+fromNone)
	}
	if w.limit > 0 {
		flags = append(flags, fmt.Sprintf("--limit=%d", w.limit-w.count))
	}
	return flags
}

// look opens the page for a moment, finds its changes, and then prints them.
func (w *watcher) look(ctx context.Context) (err error) {
	w.app.again = w.again()
	found := spool.New(os.TempDir(), "ledgerd-watch-*", maxPending)
	defer func() { err = errors.Join(err, found.Close()) }()
	err = w.app.printTo(found, func() error {
		return w.app.read(ctx, func(repo *ledger.Repository) error {
			err := w.app.pageIn(ctx, repo, w.name, reads, func(page *ledger.Page) error { return w.news(ctx, page) })
			if errors.Is(err, errNoPage) && !w.started {
				w.waiting()
				return nil
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	r, err := found.Reader()
	if err == nil {
		_, err = io.Copy(w.app.out, r)
	}
	return errors.Join(err, w.app.out.Flush())
}

// start determines the commit at which the watch begins.
func (w *watcher) start(ctx context.Context, page *ledger.Page) error {
	if w.started {
		return nil
	}
	var err error
	if w.from = ledger.FirstCommit(); w.begin != fromNone {
		w.from, err = w.app.resolve(ctx, page, cmp.Or(w.begin, "HEAD"))
	}
	w.started = err == nil
	return err
}

// news finds the changes of the page after w.from.
func (w *watcher) news(ctx context.Context, page *ledger.Page) error {
	if err := w.start(ctx, page); err != nil {
		return err
	}
	head, err := descendant(ctx, page, w.from)
	if err != nil || head.ID == w.from {
		return err
	}
	begun := false
	err = w.app.printDiff(ctx, filetree.Diff(ctx, page, w.from, head.ID, w.prefix), func() {
		begun = true
		w.app.printIf(!w.app.json, "commit %s\n", writerText(head))
	})
	if err != nil {
		return err
	}
	if begun {
		w.count++
	}
	if begun && w.app.json {
		w.app.emit(object{"commit", head.ID, "base", w.from, "time", head.Time, "device?", head.Device, "message?", head.Message})
	}
	w.from = head.ID
	return nil
}

// descendant returns the newest head that is from or a descendant of it.
func descendant(ctx context.Context, page *ledger.Page, from ledger.CommitID) (ledger.Commit, error) {
	heads, err := page.Heads(ctx)
	if err != nil {
		return ledger.Commit{}, err
	}
	start, err := page.Commit(ctx, from)
	if err != nil {
		return ledger.Commit{}, fmt.Errorf("read the commit to go on from: %w", err)
	}
	if start.Generation == 0 { // all heads descend from it, even if the commits between were pruned
		return heads[len(heads)-1], nil
	}
	for i := len(heads) - 1; i >= 0; i-- {
		for c, err := range page.Log(ctx, heads[i].ID) {
			if err != nil {
				return ledger.Commit{}, fmt.Errorf("read history: %w", err)
			}
			if c.ID == from {
				return heads[i], nil
			}
			if c.Generation < start.Generation {
				break // the commits that follow have no higher generation
			}
		}
	}
	return ledger.Commit{}, classedf(ledger.ErrNotFound, "no head descends from commit %s", from.Short())
}
