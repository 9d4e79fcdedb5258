package cli

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledger"
)

// reportEvery is how often serve looks whether syncing fails.
const reportEvery = 10 * time.Second

// A failure that lasts is told again after remindFirst, and then after twice as long each time, up
// to remindLast.
const (
	remindFirst = time.Minute
	remindLast  = 4 * time.Hour
)

// maxNamed is how many pages one line names that fail for one reason.
const maxNamed = 3

// serveLog tells what serve has to say of syncing, a line each, with the time. Its methods may be
// called concurrently.
type serveLog struct {
	app *app

	mu      sync.Mutex
	failing map[string]*failure // guarded by mu; by the name of the page, otherPages for the list of pages
}

// otherPages stands for a page where looking for the pages of other devices fails. No page has that
// name.
const otherPages = ""

// failure is a page that cannot be synced.
type failure struct {
	since, next time.Time     // when it was told first, and when it is told again
	pause       time.Duration // the one before next
}

func newServeLog(a *app) *serveLog { return &serveLog{app: a, failing: map[string]*failure{}} }

// look tells which pages have begun to fail, which fail still when that is due, and which are
// synced again. listErr is why the pages of other devices could not be looked for.
func (l *serveLog) look(states []ledger.SyncState, listErr error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := map[string]error{}
	if listErr != nil {
		errs[otherPages] = listErr
	}
	here := map[string]bool{otherPages: true}
	for i := range states {
		s := &states[i]
		name := nameOf(s.Ledger, s.Name, s.Page)
		here[name] = true
		if err := syncErr(*s); err != nil {
			errs[name] = err
		}
	}
	now := l.app.process.Clock.Now()
	l.tellFailing(now, errs)
	var again []string
	for name := range l.failing {
		if errs[name] == nil {
			delete(l.failing, name)
			if here[name] { // else it was evicted or deleted
				again = append(again, name)
			}
		}
	}
	if len(again) > 0 {
		slices.Sort(again)
		l.app.told(now, "sync of "+namesText(again)+" works again", "")
	}
}

// tellFailing tells those failures that are due. Pages that fail with the same advice share a line.
// mu is held.
func (l *serveLog) tellFailing(now time.Time, errs map[string]error) {
	due := map[string][]string{} // by advice
	since := map[string]time.Time{}
	for name, err := range errs {
		f := l.failing[name]
		switch {
		case f == nil:
			f = &failure{since: now, pause: remindFirst}
			l.failing[name] = f
		case now.Before(f.next):
			continue
		default:
			f.pause = min(2*f.pause, remindLast)
		}
		f.next = now.Add(f.pause)
		hint := l.app.hintOf(err)
		due[hint] = append(due[hint], name)
		if at := since[hint]; at.IsZero() || f.since.Before(at) {
			since[hint] = f.since
		}
	}
	for hint, names := range due {
		slices.Sort(names)
		text := fmt.Sprintf("sync of %s fails", namesText(names))
		if at := since[hint]; at.Before(now) {
			text += " since " + timeText(at.Truncate(time.Second))
		}
		l.app.told(now, text+": "+errs[names[0]].Error(), hint)
	}
}

// namesText names pages that have one thing in common.
func namesText(names []string) string {
	if len(names) > 1 && names[0] == otherPages {
		names = names[1:] // what fails for them fails for the list
	}
	switch rest := len(names) - maxNamed; {
	case names[0] == otherPages:
		return "the list of pages"
	case len(names) == 1:
		return "page " + names[0]
	case rest > 0:
		return fmt.Sprintf("%s (%s and %d more)", countText(len(names), "page"), strings.Join(names[:maxNamed], ", "), rest)
	}
	return "pages " + strings.Join(names, ", ")
}
