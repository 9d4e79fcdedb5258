package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
)

// setClock is a clock that a test sets. Nobody waits for it.
type setClock struct{ now time.Time }

func (c *setClock) Now() time.Time { return c.now }
func (c *setClock) After(time.Duration) (<-chan time.Time, func()) {
	return nil, func() {}
}

// TestServeTellsOfFailures follows pages that fail, fail on, are mended and leave, on a clock of
// its own.
func TestServeTellsOfFailures(t *testing.T) {
	var out bytes.Buffer
	c := &setClock{now: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	l := &serveLog{app: &app{process: Process{Stderr: &out, Clock: c, Program: "ledgerd"}}, since: map[string]time.Time{}}
	away := fmt.Errorf("the disk is away: %w", ledger.ErrNetwork)
	state := func(name string, err error) ledger.SyncState {
		return ledger.SyncState{Ledger: "notes", Name: name, Page: ledger.DerivePageID("notes", name), DownloadErr: err}
	}
	var listErr error
	at := func(d time.Duration, want string, states ...ledger.SyncState) {
		t.Helper()
		c.now = c.now.Add(d)
		out.Reset()
		l.look(states, listErr)
		if want == "" && out.Len() > 0 || !strings.Contains(out.String(), want) || strings.Count(out.String(), "\n") > 1 {
			t.Fatalf("at %s it says %q, want %q", c.now, &out, want)
		}
	}
	at(0, "", state("a", nil), state("b", nil))
	at(time.Second, "ledgerd: 2026-01-02T03:04:06Z sync of pages notes/a, notes/b fails: the disk is away: ", state("a", away), state("b", away))
	if !strings.Contains(out.String(), "; try: connect and run it again") {
		t.Errorf("it says nothing of what to do: %q", &out)
	}
	at(59*time.Minute, "", state("a", away), state("b", away))
	at(time.Minute, "sync of pages notes/a, notes/b fails since 2026-01-02T03:04:06Z: ", state("a", away), state("b", away))
	at(59*time.Minute, "", state("a", away), state("b", away))
	at(time.Minute, "fails since", state("a", away), state("b", away))
	at(time.Second, "sync of page notes/a works again", state("a", nil), state("b", away))
	at(time.Second, "", state("a", nil)) // b was evicted
	at(time.Second, "sync of page notes/b fails: ", state("a", nil), state("b", away))
	for range 20 {
		at(remindEvery, "fails since", state("b", away))
	}
	at(remindEvery-time.Second, "", state("b", away))

	at(time.Second, "works again", state("b", nil))
	listErr = away
	at(time.Second, "sync of the list of pages fails: the disk is away", state("b", nil))
	listErr = nil
	at(0, "sync of the list of pages works again", state("b", nil))
	at(0, "sync of page notes/c fails: it cannot be read", state("b", nil), state("c", errors.New("it cannot be read")))
}

// TestServeTellsAsJSON has the lines for programs.
func TestServeTellsAsJSON(t *testing.T) {
	var out bytes.Buffer
	a := &app{json: true, process: Process{Stderr: &out}}
	a.told(time.Unix(0, 0), "text", "hint")
	if got, want := out.String(), `{"warning":"text","time":"1970-01-01T00:00:00Z","hint":"hint"}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
