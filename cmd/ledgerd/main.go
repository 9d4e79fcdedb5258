// Command ledgerd stores directory trees, files and values as versioned pages: see ledgerd --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/gcs"
	"github.com/ledgerd/ledger/cloudsync/s3"
	"github.com/ledgerd/ledger/internal/cli"
)

func main() {
	os.Exit(run())
}

// run runs the command with a context that ends at signals. The first interrupt shuts down in
// order, the second at once.
func run() int {
	signal.Ignore(syscall.SIGPIPE) // a write to a closed output then returns an error
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, stop)
	return cli.Main(ctx, cli.Process{
		Program:   program(os.Args[0]),
		Args:      os.Args[1:],
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		LookupEnv: os.LookupEnv,
		Buckets:   map[string]bucket.Opener{"gs": gcs.Opener, "s3": s3.Opener},
	})
}

// program returns the command to run the program again: its path as called, or "go run" when go run
// has built it in a temporary directory.
func program(called string) string {
	switch {
	case strings.Contains(called, string(filepath.Separator)+"go-build"):
		return "go run ./cmd/ledgerd"
	case strings.ContainsRune(called, filepath.Separator):
		return called
	}
	return "" // found by the shell
}
