//go:build unix

package main

import (
	"bytes"
	"context"
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

// waitFile PATTERN waits until a file of that name is there.
func waitFile(ts *testscript.TestScript, _ bool, args []string) {
	for range 1000 {
		if found, err := filepath.Glob(ts.MkAbs(args[0])); err == nil && len(found) > 0 {
			return
		}
		tick, release := clock.System.After(10 * time.Millisecond)
		<-tick
		release()
	}
	ts.Fatalf("%s did not appear", args[0])
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
	for range 2000 {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if got = len(match.FindAll(bytes.TrimSuffix(text, []byte("\n")), -1)); err == nil && len(text) > 0 && got >= want {
			return
		}
		tick, release := clock.System.After(10 * time.Millisecond)
		<-tick
		release()
	}
	ts.Fatalf("%s has %d lines, want %d", args[0], got, want)
}
