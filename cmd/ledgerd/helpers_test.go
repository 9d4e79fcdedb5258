//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledger/internal/clock"
	"github.com/rogpeppe/go-internal/testscript"
)

func ctx() context.Context { return context.Background() }

func notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// eventually waits until a condition holds. Its limit is for scripts that hang, not for slow
// machines.
func eventually(ts *testscript.TestScript, done func() bool, fail func() string) {
	limit, release := clock.System.After(5 * time.Minute)
	defer release()
	for !done() {
		tick, release := clock.System.After(10 * time.Millisecond)
		select {
		case <-tick:
		case <-limit:
			ts.Fatalf("%s", fail())
		}
		release()
	}
}

// waitFile PATTERN waits until a file of that name is there.
func waitFile(ts *testscript.TestScript, _ bool, args []string) {
	eventually(ts, func() bool {
		found, err := filepath.Glob(ts.MkAbs(args[0]))
		return err == nil && len(found) > 0
	}, func() string { return args[0] + " did not appear" })
}

// touchAt TIME PATH... sets modification times.
func touchAt(ts *testscript.TestScript, _ bool, args []string) {
	t, err := time.Parse(time.RFC3339Nano, args[0])
	ts.Check(err)
	for _, name := range args[1:] {
		ts.Check(os.Chtimes(ts.MkAbs(name), t, t))
	}
}

// lines FILE N waits until a file has N lines that match an optional regular expression.
func lines(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	match := regexp.MustCompile("(?m)" + strings.Join(append(args[2:], "^.*$")[:1], ""))
	got := 0
	eventually(ts, func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		got = len(match.FindAll(bytes.TrimSuffix(text, []byte("\n")), -1))
		return err == nil && len(text) > 0 && got >= want
	}, func() string { return fmt.Sprintf("%s has %d lines, want %d", args[0], got, want) })
}
