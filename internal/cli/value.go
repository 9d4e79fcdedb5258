package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ledgerd/ledger"
)

// maxValueText is how many bytes of a value a line shows.
const maxValueText = 64

// valueText is what a key has, for people: a short value quoted, of a longer one size and object or
// beginning; nil is no entry.
func valueText(ctx context.Context, e *ledger.Entry) (string, error) {
	switch {
	case e == nil:
		return "no value", nil
	case !e.Inline:
		return sizeText(e.Size) + " " + e.Object[:16] + "...", nil
	}
	value, err := e.Value(ctx)
	if err != nil {
		return "", fmt.Errorf("read value: %w", err)
	}
	if len(value) <= maxValueText {
		return strconv.Quote(string(value)), nil
	}
	return strconv.Quote(string(value[:maxValueText])) + "... (" + sizeText(e.Size) + ")", nil
}

// valueObject is what a key has, as --json prints it: with the value itself when it is short. It is
// nil for no entry.
func valueObject(ctx context.Context, e *ledger.Entry) (object, error) {
	if e == nil || !e.Inline {
		return sideObject(e), nil
	}
	value, err := e.Value(ctx)
	if err != nil {
		return nil, fmt.Errorf("read value: %w", err)
	}
	return append(sideObject(e), "value", jsonBytes(value)), nil
}
