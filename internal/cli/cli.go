package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/ledgerd/ledger/internal/clock"
)

// programName is how the program is called where it is installed.
const programName = "ledgerd"

// Process is what a run of the program sees of the world. Nil fields have no default except Clock.
type Process struct {
	// Program is how the program was called, such as ./ledgerd, for the commands that messages propose; ""
	// means ledgerd.
	Program string
	// Args are the arguments without the name of the program.
	Args []string
	// Stdin, Stdout and Stderr are the standard streams. Progress is shown when Stderr is an *os.File on a
	// terminal.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// LookupEnv reads the environment, as os.LookupEnv does.
	LookupEnv func(string) (string, bool)
	// Clock tells the time; nil means the machine's.
	Clock clock.Clock
}

// Main runs one command and returns the exit code of the process (see ExitCode). It writes nothing to the
// repository once ctx has ended, except what is already being made durable.
func Main(ctx context.Context, p Process) int {
	if p.Program == "" {
		p.Program = programName
	}
	if p.Clock == nil {
		p.Clock = clock.System
	}
	a := &app{process: p, out: newOutput(p.Stdout)}
	root := a.root()
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(a.out)
	root.SetErr(p.Stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		err = a.usage(root, err)
		a.json = a.json || a.wantsJSON()
	}
	if flushErr := a.out.Flush(); err == nil || errors.Is(flushErr, syscall.EPIPE) {
		err = flushErr
	}
	if errors.Is(err, syscall.EPIPE) {
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
	value, _ := a.process.LookupEnv(envName("json"))
	set, err := strconv.ParseBool(value)
	return err == nil && set
}

// app is one run: the process, its flags and its output.
type app struct {
	process Process
	out     *output

	// Flags of every verb.
	dir         string
	json        bool
	quiet       bool
	noProgress  bool
	hex         bool
	device      string
	lockTimeout time.Duration

	started  bool // a verb has begun: errors are no longer about usage
	warnings int  // things left out: the exit code is ExitPartly
}

// output is the buffered standard output. It keeps the first error, so that callers may leave errors to Flush.
type output struct {
	*bufio.Writer
}

func newOutput(w io.Writer) *output {
	return &output{bufio.NewWriterSize(w, 64<<10)}
}

// isTerminal returns the file behind w when it is on a terminal.
func isTerminal(w io.Writer, check func(fd int) bool) (*os.File, bool) {
	f, ok := w.(*os.File)
	return f, ok && check(int(f.Fd()))
}
