package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/spf13/cobra"
)

// programName is how the program is called where it is installed.
const programName = "ledgerd"

// Process is what a run of the program sees of the world. Nil fields have no default except Clock.
type Process struct {
	// Program is how the program was called, such as ./ledgerd, for the commands that messages
	// propose; "" means ledgerd.
	Program string
	// Args are the arguments without the name of the program.
	Args []string
	// Stdin, Stdout and Stderr are the standard streams. Progress is shown when Stderr is an
	// *os.File on a terminal.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Asks says that a person answers on Stdin what is asked on Stderr. It need not be set where
	// both are an *os.File on a terminal.
	Asks bool
	// LookupEnv reads the environment, as os.LookupEnv does.
	LookupEnv func(string) (string, bool)
	// Buckets are the openers by scheme that the program links; that of dir is built in.
	Buckets map[string]bucket.Opener
	// Clock tells the time; nil means the machine's.
	Clock clock.Clock

	served  *ledger.Repository // of the process that serves it, for the verbs of others
	workDir string             // the directory that relative paths mean, when it is not that of this process
}

// Main runs one command and returns the exit code of the process (see ExitCode). It writes nothing
// to the repository once ctx has ended, except what is already being made durable.
func Main(ctx context.Context, p Process) int {
	p.Program, p.Clock = cmp.Or(p.Program, programName), cmp.Or(p.Clock, clock.System)
	a := &app{process: p, out: newOutput(p.Stdout)}
	a.stdout = a.out.below
	ctx, a.stdout.end = context.WithCancel(ctx)
	defer a.stdout.end()
	root := a.root()
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(a.out)
	root.SetErr(p.Stderr)
	err := root.ExecuteContext(ctx)
	if f, ok := errors.AsType[*forwarded](err); ok {
		return f.code
	}
	if a.completed {
		return ExitDone
	}
	if err != nil && !a.started {
		err = a.usage(root, err)
		a.json = a.json || a.wantsJSON()
	}
	if flushErr := errors.Join(a.out.broken, a.out.Flush()); err == nil && flushErr != nil {
		err = fmt.Errorf("%w: %w", errOutput, flushErr)
	}
	if a.stdout.closed { // a connection to a bucket may break as a pipe does: that is no such case
		return ExitDone // whoever read the output has seen enough
	}
	if err == nil && a.warnings > 0 {
		return ExitPartly
	}
	if err != nil {
		a.printError(err)
	}
	return ExitCode(err)
}

// wantsJSON looks for --json where the flags could not be read.
func (a *app) wantsJSON() bool {
	for _, arg := range a.process.Args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	set, _ := strconv.ParseBool(a.env(environmentFlags["json"])) // what is neither is said to be wrong
	return set
}

// app is one run: the process, its flags and its output.
type app struct {
	process Process
	out     *output        // of the verb: the standard output, or what is said before a question
	stdout  *touchedWriter // the standard output

	// Flags of every verb.
	dir         string
	json        bool
	quiet       bool
	noProgress  bool
	hex         bool
	device      string
	lockTimeout time.Duration

	pass      []byte          // passphrase of the cloud, when a flag has named it
	answers   *bufio.Reader   // the standard input, once something was asked
	started   bool            // a verb has begun: errors are no longer about usage
	verb      *cobra.Command  // the command that was given
	completed bool            // another process has completed the line
	named     []pageName      // the pages that the verb was given
	again     []string        // flags with which another process goes on with it, behind those that were given
	warnings  int             // things left out: the exit code is ExitPartly
	cautioned map[string]bool // of cautionModes, by path
}

// output is the buffered standard output. It keeps the first error, so that callers may leave
// errors to Flush.
type output struct {
	*bufio.Writer
	below  *touchedWriter
	broken error // what could not be made to be printed
}

func newOutput(w io.Writer) *output {
	below := &touchedWriter{w: w}
	return &output{Writer: bufio.NewWriterSize(below, 64<<10), below: below}
}

// discard drops what was printed and reports whether it could: nothing of it has left the process.
func (o *output) discard() bool {
	if o.below.touched {
		return false
	}
	o.Reset(o.below)
	return true
}

// touchedWriter notes that something was written, and that nobody reads it any more.
type touchedWriter struct {
	w       io.Writer
	touched bool
	closed  bool
	end     context.CancelFunc // ends the verb when nobody reads what it prints; nil for none
}

// Write implements io.Writer.
func (t *touchedWriter) Write(b []byte) (int, error) {
	t.touched = true
	n, err := t.w.Write(b)
	if t.closed = t.closed || errors.Is(err, syscall.EPIPE); t.closed && t.end != nil {
		t.end()
	}
	return n, err
}

// isTerminal returns the file behind w when it is on a terminal.
func isTerminal(w io.Writer, check func(fd int) bool) (*os.File, bool) {
	f, ok := w.(*os.File)
	return f, ok && check(int(f.Fd()))
}
