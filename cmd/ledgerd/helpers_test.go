package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ledgerd/ledger/internal/clock"
	"github.com/rogpeppe/go-internal/testscript"
)

func ctx() context.Context { return context.Background() }

func notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// waitFile PATH waits until a file is there.
func waitFile(ts *testscript.TestScript, _ bool, args []string) {
	for range 1000 {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
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
