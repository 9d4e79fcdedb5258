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

// dryRun is the flag of a verb that can report its work without doing it. Such a verb has one
// function for both: it determines the work, and then prints or does it.
type dryRun struct {
	Dry bool `flag:"dry-run" usage:"only print what would be done"`
}

// consent has the flags of a destructive verb.
type consent struct {
	dryRun
	Yes bool `flag:"yes,y" usage:"do not ask"`
}

// destroy runs a destructive verb. do(true) prints the work of the verb and changes nothing;
// do(false) does the work. With --dry-run only do(true) runs. With --yes, or if danger is empty,
// do(false) runs at once. On a terminal the user reads the output of do(true) and decides.
// Otherwise destroy returns a usage error with the text danger.
//
// No repository is held open while the user decides, so do opens its own.
func (a *app) destroy(ctx context.Context, c consent, danger string, do func(dry bool) error) error {
	switch {
	case c.Dry:
		return do(true)
	case c.Yes || danger == "":
		return do(false)
	case a.json || !a.asks(): // a question would not be JSON
		return usagef("%s: give --yes, or --dry-run to see the effect", danger)
	}
	if err := a.ask(ctx, danger, func() error { return do(true) }); err != nil {
		return err
	}
	return do(false)
}

// ask calls state, prints its output to the standard error, and asks the user. It returns nil for
// yes.
func (a *app) ask(ctx context.Context, danger string, state func() error) error {
	if err := a.printTo(a.process.Stderr, state); err != nil {
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

// printTo calls fn, and writes to w what fn prints.
func (a *app) printTo(w io.Writer, fn func() error) error {
	out := a.out
	a.out = newOutput(w)
	err := errors.Join(fn(), a.out.broken, a.out.Flush())
	a.out = out
	return err
}

// answer reads a line of the standard input.
func (a *app) answer(ctx context.Context) (string, error) {
	if a.answers == nil {
		a.answers = bufio.NewReader(interruptible(ctx, a.process.Stdin))
	}
	line, err := a.answers.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), choose(errors.Is(err, io.EOF), nil, err)
}

// asks reports whether a user answers on the standard input and reads the standard error.
func (a *app) asks() bool {
	if a.process.Asks {
		return true
	}
	stdin, ok := a.process.Stdin.(*os.File)
	_, reads := isTerminal(a.process.Stderr, term.IsTerminal)
	return ok && reads && term.IsTerminal(int(stdin.Fd()))
}
