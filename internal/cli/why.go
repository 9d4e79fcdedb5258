package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

type whyFlags struct {
	pageArg
	Key oneKey `arg:""`
	At  string `flag:"at" usage:"revision to explain (default HEAD)"`
}

func (a *app) why(ctx context.Context, page *ledger.Page, f whyFlags) error {
	key, at := f.Key, f.At
	id, err := a.commitAt(ctx, page, at)
	if err != nil {
		return err
	}
	var last *ledger.Step
	for step, err := range page.Why(ctx, id, key) {
		if err != nil {
			return fmt.Errorf("explain %s: %w", a.shortKey(key), err)
		}
		last = &step
		if err := choose(a.json, a.emitStep, a.printStep)(ctx, page, step); err != nil {
			return fmt.Errorf("explain %s: %w", a.shortKey(key), err)
		}
	}
	if last != nil {
		if len(last.Lost) > 0 && len(last.Commit.Parents) == 1 && !a.hex && isPrintable(string(key)) {
			a.tell("earlier history: %s", a.command("why", pageText(page), string(key), "--at", last.Commit.ID.Short()+"~1"))
		}
		return nil
	}
	err = a.noKey(ctx, page, key, at, ledger.ErrNotFound)
	if hint, ok := errors.AsType[*hintError](err); ok {
		return withHint(fmt.Errorf("%w, and its history has none either", hint.err), "%s", hint.hint)
	}
	return err
}

func (a *app) printStep(ctx context.Context, page *ledger.Page, s ledger.Step) error {
	value, err := valueText(ctx, s.Entry)
	if err != nil {
		return err
	}
	was := "was"
	if s.Pruned {
		value += "; older history was given up"
	} else if len(s.Commit.Parents) > 1 {
		was = "lost"
		value += choose(s.Rule != "", ", by "+printable(s.Rule), ", changed on this side only")
	}
	text, err := signedText(ctx, page, s.Commit)
	if err != nil {
		return err
	}
	a.printf("%s\n    now   %s\n", text, value)
	for _, l := range s.Lost {
		value, err := valueText(ctx, l.Entry)
		if err != nil {
			return err
		}
		if l.Writer != nil {
			text, err := signedText(ctx, page, *l.Writer)
			if err != nil {
				return err
			}
			value += " of " + text
		}
		a.printf("    %-4s  %s\n", was, value)
	}
	return nil
}

// signedText is writerText and the device that put the commit into the log of the cloud.
func signedText(ctx context.Context, page *ledger.Page, c ledger.Commit) (string, error) {
	s, err := senderOf(ctx, page, c.ID)
	text := writerText(c)
	if s.Device != "" {
		text += ", sent by " + senderText(s)
	}
	return text, err
}

// senderOf returns the device that put a commit into the log of the cloud. The result is zero for a
// commit that is not in the log or was given up.
func senderOf(ctx context.Context, page *ledger.Page, id ledger.CommitID) (admin.Sender, error) {
	s, err := admin.SenderOf(ctx, page, id)
	if errors.Is(err, ledger.ErrNotFound) || errors.Is(err, ledger.ErrGone) {
		return admin.Sender{}, nil
	}
	return s, err
}

// writerText describes a commit with its device in one line.
func writerText(c ledger.Commit) string {
	return joined(" ", c.ID.Short(), clockText(c.Time), printable(c.Device), title(c))
}

func (a *app) emitStep(ctx context.Context, page *ledger.Page, s ledger.Step) error {
	sender, err := senderOf(ctx, page, s.Commit.ID)
	if err != nil {
		return err
	}
	entry, err := valueObject(ctx, s.Entry)
	if err != nil {
		return err
	}
	lost, err := mapped(s.Lost, func(l ledger.LostValue) (by object, err error) {
		if l.Writer != nil {
			sender, err := senderOf(ctx, page, l.Writer.ID)
			if err != nil {
				return nil, err
			}
			by = object{"writer", l.Writer.ID, "time", l.Writer.Time, "device?", l.Writer.Device, "sender?", sender.Device}
		}
		value, err := valueObject(ctx, l.Entry)
		return append(by, "entry?", value), err
	})
	if err != nil {
		return err
	}
	c := s.Commit
	a.emit(object{
		"commit", c.ID, "time", c.Time, "device?", c.Device, "sender?", sender.Device, "message?", c.Message, "parents", objects(c.Parents, ledger.CommitID.String),
		"entry?", entry, "outcome?", s.Outcome, "rule?", s.Rule, "pruned?", s.Pruned, "lost", lost,
	})
	return nil
}
