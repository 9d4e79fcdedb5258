// Command ledgerd stores directory trees, files and values as versioned pages: see ledgerd --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ledgerd/ledger/internal/cli"
)

func main() {
	os.Exit(run())
}

// run carries signals into a context: the first interrupt ends what runs in good order, the second one at once.
func run() int {
	signal.Ignore(syscall.SIGPIPE) // a closed output is an error of the write
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return cli.Main(ctx, cli.Process{
		Args:      os.Args[1:],
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		LookupEnv: os.LookupEnv,
	})
}
