package filetree

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
)

// ImportJSONLines puts an entry for every line of r, in the format of ExportJSONLines, in one
// transaction. Lines may have white space between tokens and may be empty. The members are in the
// order key, priority, value; priority may be missing. Of lines with equal keys the last one
// counts. Other keys of the page stay. Any other line fails the import, with its number, and leaves
// the page unchanged. One line is in memory at a time. Exclude, Checksum and Warn are not used;
// DryRun is refused.
func ImportJSONLines(ctx context.Context, page *ledger.Page, r io.Reader, o *ImportOptions) (Result, error) {
	return transact(ctx, page, o, func(im *importer) error {
		if im.options.DryRun {
			return fmt.Errorf("import: DryRun is not for JSON lines: %w", ledger.ErrInvalid)
		}
		im.options.Checksum = true // so that an equal value counts as unchanged
		lines := newLineReader(r)
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := lines.next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = im.line(ctx, lines)
			}
			if err != nil {
				return fmt.Errorf("line %d: %w", lines.number, err)
			}
		}
	})
}

// line puts the entry of the present line.
func (im *importer) line(ctx context.Context, l *lineReader) error {
	priority := ledger.Eager
	if l.lazy || im.options.Lazy {
		priority = ledger.Lazy
	}
	_, err := im.base.Stat(ctx, l.key)
	known := err == nil
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	if err := im.tx.PutPriority(ctx, l.key, l.value, priority); err != nil {
		return err
	}
	im.passed(int64(len(l.value)))
	im.done(string(l.key))
	return im.count(ctx, known, l.key)
}

// lineReader reads JSON lines. After next, key, value and lazy are those of the line.
type lineReader struct {
	in         *bufio.Reader
	number     int // of the line, from 1
	key, value jsonBytes
	lazy       bool
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, 64<<10)}
}

// next reads the next line that is not empty. It returns io.EOF at the end.
func (l *lineReader) next() error {
	for {
		l.number++
		line, err := l.in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if line = bytes.Trim(line, " \t\r\n"); len(line) == 0 {
			if err != nil {
				return err
			}
			continue
		}
		if err := l.parse(line); err != nil {
			return fmt.Errorf("read line: %v: %w", err, ledger.ErrInvalid) // io.EOF here is not that of the input
		}
		if len(l.key) > maxKeyBytes {
			return fmt.Errorf("read key: it has more than %d bytes: %w", maxKeyBytes, ledger.ErrTooLarge)
		}
		return nil
	}
}

// parse reads a line that ExportJSONLines would write, up to white space.
func (l *lineReader) parse(line []byte) error {
	if !utf8.Valid(line) {
		return errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if t, _ := d.Token(); t != json.Delim('{') {
		return errors.New("it is no object with key and value")
	}
	var priority *string
	want := "key"
	for d.More() {
		name, err := d.Token()
		switch {
		case err != nil:
		case name == "priority" && want == "value" && priority == nil:
			err = d.Decode(&priority)
		case name != want:
			err = fmt.Errorf("member %q where %q must be", name, want)
		case want == "key":
			err, want = d.Decode(&l.key), "value"
		default:
			err, want = d.Decode(&l.value), "}"
		}
		if err != nil {
			return err
		}
	}
	end, _ := d.Token()
	if _, err := d.Token(); want != "}" || end != json.Delim('}') || !errors.Is(err, io.EOF) {
		return errors.New("it ends too early, or something follows the object")
	}
	l.lazy = false
	if priority == nil || *priority == ledger.Eager.String() {
		return nil
	}
	if l.lazy = *priority == ledger.Lazy.String(); !l.lazy {
		return fmt.Errorf("priority %q is neither %q nor %q", *priority, ledger.Eager, ledger.Lazy)
	}
	return nil
}

// jsonBytes are bytes as AppendJSONBytes writes them.
type jsonBytes []byte

// wholePairs matches a string without an escape of one half of a surrogate pair, which package json
// would replace.
var wholePairs = regexp.MustCompile(`^"(?:[^\\]|\\[^u]|\\u[^dD]|\\u[dD][0-7]|\\u[dD][89abAB]..\\u[dD][c-fC-F])*"$`)

// UnmarshalJSON implements json.Unmarshaler.
func (b *jsonBytes) UnmarshalJSON(text []byte) error {
	if text[0] == '{' {
		var o struct{ Base64 *string }
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&o); err != nil {
			return err
		}
		if o.Base64 == nil || strings.ContainsAny(*o.Base64, "\r\n") { // package base64 would skip line breaks
			return errors.New(`want {"base64":"..."} without line breaks`)
		}
		got, err := base64.StdEncoding.Strict().DecodeString(*o.Base64)
		*b = got
		return err
	}
	if (bytes.Contains(text, []byte(`\ud`)) || bytes.Contains(text, []byte(`\uD`))) && !wholePairs.Match(text) {
		return errors.New("half a surrogate pair in a string")
	}
	var s *string
	if err := json.Unmarshal(text, &s); err != nil || s == nil {
		return errors.New(`want a string or {"base64":"..."}`)
	}
	*b = []byte(*s)
	return nil
}
