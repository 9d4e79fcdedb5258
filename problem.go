package ledger

import (
	"errors"
)

// Problem is one thing that is not as it should be.
type Problem struct {
	// Where is the place: a file with an offset, or a row family.
	Where string
	// Key names the row or object, or is "".
	Key string
	// Message says what is wrong.
	Message string
	// Fetchable reports that the cloud has what is damaged, as far as is known here.
	Fetchable bool
	// Repaired reports whether it was mended.
	Repaired bool
}

// String returns the problem as one line.
func (p Problem) String() string {
	s := p.Where
	if p.Key != "" {
		s += " " + p.Key
	}
	s += ": " + p.Message
	switch {
	case p.Repaired:
		s += " (repaired)"
	case p.Fetchable:
		s += " (the cloud has it)"
	}
	return s
}

// problemText says what is wrong with a file that is named already.
func problemText(err error) string {
	if e, ok := errors.AsType[*CorruptError](err); ok && e.Got != "" {
		return e.Got
	}
	return err.Error()
}
