package jsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/layout"
)

// Kind says what is wrong with a row.
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

// Issue is something that is wrong. Its slices belong to whoever is told.
type Issue struct {
	Kind Kind
	Key  []byte
	// Old is the value of the row, nil when it is missing.
	Old []byte
	// New is the value that the row gets by Repair, nil when it is removed. Where NewKey is set,
	// the row moves there.
	New, NewKey []byte
	// Text says what is wrong.
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

// Options change what is done. The zero value, and a nil pointer, are the defaults.
type Options struct {
	// Report is told each issue, before it is repaired. An error of it ends the check.
	Report func(Issue) error
	// RemoveSchemas removes schemas that no object has, when there are no lasting issues.
	RemoveSchemas bool
}

// Result is what a check has found.
type Result struct {
	// Rows and Objects are how many were read; objects that are repaired by deletion are not
	// counted.
	Rows, Objects int64
	// Issues is how many were told, Lasting how many of them are not repaired by Repair.
	Issues, Lasting int64
	// SchemasRemoved is how many schemas were removed because no object has them.
	SchemasRemoved int
	// Stopped is set when objects were not looked at, because it is not certain what the schemas
	// are.
	Stopped bool
}

// Check reads a database and reports what is wrong. Errors: layout.ErrUninitialized when there is
// nothing, base.ErrUnsupported when the format is of another version, those of r, of ctx and of
// Options.Report.
func Check(ctx context.Context, r ordered.Reader, o *Options) (Result, error) {
	return run(ctx, &checker{r: r}, o)
}

// Repair does what Check does, and repairs what it reports but lasting issues. Errors: as Check,
// and those of w. After an error, what was written should be rolled back.
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
	if err == nil && c.o.RemoveSchemas && c.w != nil && c.result.Lasting == 0 {
		err = c.removeSchemas(ctx)
	}
	if err != nil {
		return c.result, fmt.Errorf("check a database: %w", err)
	}
	return c.result, nil
}

// checker is one check.
type checker struct {
	r      ordered.Reader
	w      ordered.Writer // nil: only check
	o      Options
	result Result
	tables *layout.Tables

	sums  sums
	alive aliveCache
}

// tell reports an issue and repairs it.
func (c *checker) tell(ctx context.Context, i Issue) error {
	c.result.Issues++
	if i.Lasting {
		c.result.Lasting++
	}
	if c.o.Report != nil {
		if err := c.o.Report(i); err != nil {
			return err
		}
	}
	if c.w == nil || i.Lasting {
		return nil
	}
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

// maxValueBytes is the greatest value that is read into memory.
const maxValueBytes = 256 << 20

// scan calls f with the rows in a range. Key and value are borrowed until f returns.
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

// clone returns a copy that is not nil.
func clone(b []byte) []byte { return append([]byte{}, b...) }

func (c *checker) removeSchemas(ctx context.Context) error {
	unused := map[uint32]bool{}
	for index := range c.tables.Schemas {
		used, err := c.tables.HasObjects(ctx, c.r, index)
		if err != nil {
			return err
		}
		unused[index] = !used
	}
	tables, err := c.tables.Without(func(s *layout.Schema) bool { return unused[s.Index] })
	if err != nil {
		return err
	}
	c.result.SchemasRemoved = len(c.tables.Schemas) - len(tables.Schemas)
	return tables.Write(ctx, c.w, c.tables)
}
