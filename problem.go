package ledger

import (
	"errors"
	"strings"
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

// ofIndex reports whether a problem is about the index, which is derived from the log.
func (p *Problem) ofIndex() bool { return strings.HasPrefix(p.Where, "page.db") }

func isDamage(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsupported)
}

// newProblem describes an error of a check.
func newProblem(err error) Problem {
	p := Problem{Where: "page", Message: err.Error()}
	if e, ok := errors.AsType[*CorruptError](err); ok {
		p.Where, p.Key = e.Where, e.Key
	}
	return p
}
