package jsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/layout"
)

// Kind is the kind of an issue.
type Kind uint8

// The kinds of issues.
const (
	// InvalidKey is a row that should not be there.
	InvalidKey Kind = iota
	// InvalidValue is a row that should have another value.
	InvalidValue
	// MissingKey is a row that should be there.
	MissingKey
)

// String returns the name of the kind, such as "InvalidKey".
func (k Kind) String() string {
	switch k {
	case InvalidKey:
		return "InvalidKey"
	case InvalidValue:
		return "InvalidValue"
	case MissingKey:
		return "MissingKey"
	}
	return fmt.Sprintf("issue %d", uint8(k))
}

// Issue is a defect of a row. Its slices belong to the receiver.
type Issue struct {
	Kind Kind
	Key  []byte
	// Old is the value of the row, nil when the row is missing.
	Old []byte
	// New is the value that Repair writes, nil when it removes the row. With NewKey, Repair moves
	// the row to that key.
	New, NewKey []byte
	// Text describes the defect.
	Text string
	// Lasting issues are not repaired.
	Lasting bool
}

// String returns the issue in one line.
func (i Issue) String() string {
	s := fmt.Sprintf("%s: key [%x]", i.Kind, i.Key)
	if i.Old != nil {
		const shown = 64
		dots := ""
		if len(i.Old) > shown {
			dots = "..."
		}
		s += fmt.Sprintf(", value [%x%s]", i.Old[:min(len(i.Old), shown)], dots)
	}
	return s + ": " + i.Text
}

// Options configure a check. The zero value and a nil pointer are the defaults.
type Options struct {
	// Report is called with each issue before its repair. Its error ends the check.
	Report func(Issue) error
}

// Result is the outcome of a check.
type Result struct {
	// Rows and Objects count what was read, without objects that Repair deletes.
	Rows, Objects int64
	// Issues counts all reported issues, Lasting those that are not repaired.
	Issues, Lasting int64
	// Stopped reports that objects were not checked because the schemas are uncertain.
	Stopped bool
}

// Check reads a database and reports its defects. Errors: layout.ErrUninitialized when there is no
// database, base.ErrUnsupported for another format version, those of r, of ctx and of
// Options.Report.
func Check(ctx context.Context, r ordered.Reader, o *Options) (Result, error) {
	return run(ctx, &checker{r: r}, o)
}

// Repair reports the same issues as Check and repairs all but lasting ones. Errors: as Check, and
// those of w. After an error the caller should roll back.
func Repair(ctx context.Context, w ordered.Writer, o *Options) (Result, error) {
	return run(ctx, &checker{r: w, w: w}, o)
}

func run(ctx context.Context, c *checker, o *Options) (Result, error) {
	if o != nil {
		c.o = *o
	}
	err := c.tablesPart(ctx)
	if err == nil && !c.result.Stopped {
		err = c.rowsPart(ctx)
	}
	if err != nil {
		return c.result, fmt.Errorf("check a database: %w", err)
	}
	return c.result, nil
}

// checker is a running check.
type checker struct {
	r      ordered.Reader
	w      ordered.Writer // nil: only check
	o      Options
	result Result
	tables *layout.Tables

	sums  sums
	alive aliveCache
}

// tell repairs an issue and reports it. It lasts when the store refuses the key of a missing row.
func (c *checker) tell(ctx context.Context, i Issue) error {
	if c.w != nil && !i.Lasting {
		err := c.repair(ctx, i)
		if i.Lasting = errors.Is(err, base.ErrTooLarge); err != nil && !i.Lasting {
			return err
		}
	}
	c.result.Issues++
	if i.Lasting {
		c.result.Lasting++
	}
	if c.o.Report != nil {
		return c.o.Report(i)
	}
	return nil
}

func (c *checker) repair(ctx context.Context, i Issue) error {
	if i.New == nil || i.NewKey != nil {
		if err := c.w.Delete(ctx, i.Key); err != nil {
			return err
		}
	}
	switch {
	case i.NewKey != nil:
		return c.w.Put(ctx, i.NewKey, i.New)
	case i.New != nil:
		return c.w.Put(ctx, i.Key, i.New)
	}
	return nil
}

// maxValueBytes is the size of the greatest value that is read into memory.
const maxValueBytes = 256 << 20

// scan calls f for the rows in a range. Key and value are borrowed until f returns.
func (c *checker) scan(ctx context.Context, rg ordered.Range, f func(key, value []byte) error) error {
	it := c.r.Iter(rg)
	defer it.Close()
	for it.Next(ctx) {
		if it.Size() > maxValueBytes {
			return fmt.Errorf("row %x has a value of %d bytes: %w", it.Key(), it.Size(), base.ErrTooLarge)
		}
		value, err := it.Value(ctx)
		if err == nil {
			err = f(it.Key(), value)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(it.Err(), it.Close())
}

func invalidKey(key, value []byte, text string) Issue {
	return Issue{Kind: InvalidKey, Key: clone(key), Old: clone(value), Text: text}
}

func invalidValue(key, value, to []byte, text string) Issue {
	i := Issue{Kind: InvalidValue, Key: clone(key), Old: clone(value), Text: text}
	if to != nil {
		i.New = clone(to)
	}
	return i
}

// clone returns a copy that is never nil.
func clone(b []byte) []byte { return append([]byte{}, b...) }
