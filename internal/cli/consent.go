package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// interruptible gives what r gives and ends with ctx, also while r waits for a person. The
// goroutine of the read that is then left ends with the process.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		buf := make([]byte, len(p)) // p is the caller's again when ctx ends first
		go func() {
			n, err := r.Read(buf)
			done <- result{n, err}
		}()
		select {
		case got := <-done:
			return copy(p, buf[:got.n]), got.err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// dryRun is the flag of a verb that can say what it would do. Such a verb has one function for
// both: it finds out what there is to do, prints that with the flag, and does it without.
type dryRun struct {
	Dry bool `flag:"dry-run" usage:"only say what would be done"`
}

// consent has the flags of a verb that destroys something.
type consent struct {
	dryRun
	Yes bool `flag:"yes,y" usage:"do it without asking"`
}

// destroy runs a destructive verb. do(true) prints what the verb would do and changes nothing, and
// do(false) does it. With --dry-run the statement is all. With --yes, or without a danger, the verb
// just runs. On a terminal the user reads the statement and decides. Elsewhere the verb is refused,
// and danger says why.
//
// No repository is held open while the user thinks, so do opens its own.
func (a *app) destroy(ctx context.Context, c consent, danger string, do func(dry bool) error) error {
	switch {
	case c.Dry:
		return do(true)
	case c.Yes || danger == "":
		return do(false)
	case a.json || !a.asks(): // a question is no JSON
		return usagef("%s: say --yes, or --dry-run to see what it is", danger)
	}
	if err := a.ask(ctx, danger, func() error { return do(true) }); err != nil {
		return err
	}
	return do(false)
}

// ask has state print what a verb would do to the standard error, and asks. It returns nil for yes.
func (a *app) ask(ctx context.Context, danger string, state func() error) error {
	out := a.out
	a.out = newOutput(a.process.Stderr)
	err := errors.Join(state(), a.out.Flush())
	a.out = out
	if err != nil {
		return err
	}
	fmt.Fprintf(a.process.Stderr, "ledgerd: %s. Go on? [y/N] ", danger)
	answer, err := a.answer(ctx)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("the answer was not yes, so nothing was done")
}

// answer reads a line of the standard input.
func (a *app) answer(ctx context.Context) (string, error) {
	if a.answers == nil {
		a.answers = bufio.NewReader(interruptible(ctx, a.process.Stdin))
	}
	line, err := a.answers.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), choose(errors.Is(err, io.EOF), nil, err)
}

// asks reports whether a person answers questions on the standard input and reads them on the
// standard error.
func (a *app) asks() bool {
	if a.process.Asks {
		return true
	}
	stdin, ok := a.process.Stdin.(*os.File)
	_, reads := isTerminal(a.process.Stderr, term.IsTerminal)
	return ok && reads && term.IsTerminal(int(stdin.Fd()))
}
