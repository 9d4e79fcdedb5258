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

// programName is the name of the installed program.
const programName = "ledgerd"

// Process is the environment of one run of the program. Of the pointer, interface and function
// fields only Clock has a default for nil.
type Process struct {
	// Program is the name by which the user started the program, such as ./ledgerd. Messages use it
	// in the commands that they propose. "" means ledgerd.
	Program string
	// Args are the arguments without the name of the program.
	Args []string
	// Stdin, Stdout and Stderr are the standard streams. Progress is shown when Stderr is an
	// *os.File on a terminal.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Asks reports that a user reads questions on Stderr and answers them on Stdin. It is implied
	// when both are an *os.File on a terminal.
	Asks bool
	// LookupEnv reads the environment, as os.LookupEnv does.
	LookupEnv func(string) (string, bool)
	// Buckets maps the URL schemes that the program links to their openers. Scheme dir is built in.
	Buckets map[string]bucket.Opener
	// Clock gives the time; nil means the system clock.
	Clock clock.Clock

	served  *ledger.Repository // set when a serve runs the command line of another process
	workDir string             // base of relative paths; "" for that of this process
	pid     int                // process whose open files /dev/fd has, if workDir is set
}

// Main runs one command and returns the exit code of the process (see ExitCode). After ctx ends,
// Main completes a write to the repository that is being made durable, and begins no other.
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
	ended := err == nil || errors.Is(err, context.Canceled) || errors.Is(err, syscall.EPIPE)
	if a.stdout.closed && ended { // the reader of the output has closed it; EPIPE alone may be of a bucket
		return ExitDone
	}
	if err == nil && a.warnings > 0 {
		return ExitPartly
	}
	if err != nil {
		a.printError(err)
	}
	return ExitCode(err)
}

// wantsJSON looks for --json when the flags could not be parsed.
func (a *app) wantsJSON() bool {
	for _, arg := range a.process.Args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	set, _ := strconv.ParseBool(a.env(environmentFlags["json"])) // bad values are reported elsewhere
	return set
}

// app is one run: the process, its flags and its output.
type app struct {
	process Process
	out     *output        // buffers the standard output, or the standard error before a question
	stdout  *touchedWriter // the standard output

	// Flags of every verb.
	dir         string
	json        bool
	quiet       bool
	noProgress  bool
	hex         bool
	device      string
	lockTimeout time.Duration

	pass       []byte          // passphrase of the cloud, if a flag named it
	answers    *bufio.Reader   // buffers the standard input from the first question on
	unwritable bool            // nothing can be written: the verb reads what this device stores
	started    bool            // a verb has begun: errors are no longer about usage
	verb       *cobra.Command  // the command of the command line
	completed  bool            // another process has printed the shell completions
	named      []pageName      // the pages among the arguments
	again      []string        // flags that forward appends to continue this verb
	warnings   int             // number of omissions reported; above 0 the exit code is ExitPartly
	cautioned  map[string]bool // the paths that cautionModes has warned about
}

// output is the buffered standard output. It keeps the first error, so callers may check errors at
// Flush alone.
type output struct {
	*bufio.Writer
	below  *touchedWriter
	broken error // errors of encoding the output
}

func newOutput(w io.Writer) *output {
	below := &touchedWriter{w: w}
	return &output{Writer: bufio.NewWriterSize(below, 64<<10), below: below}
}

// discard drops the buffered output. It reports false, and drops nothing, if output has already
// left the process.
func (o *output) discard() bool {
	if o.below.touched {
		return false
	}
	o.Reset(o.below)
	return true
}

// touchedWriter records whether anything was written, and whether the reader has closed the pipe.
type touchedWriter struct {
	w       io.Writer
	touched bool
	closed  bool
	end     context.CancelFunc // ends the verb when the reader closes the pipe; nil for none
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

// isTerminal returns the file of w if w is a terminal.
func isTerminal(w io.Writer, check func(fd int) bool) (*os.File, bool) {
	f, ok := w.(*os.File)
	return f, ok && check(int(f.Fd()))
}
