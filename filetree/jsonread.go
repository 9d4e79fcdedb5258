package filetree

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
)

// ImportJSONLines puts an entry for every line of r, in the format of ExportJSONLines, in one
// transaction. Lines may have white space between tokens and may be empty. The members are in the
// order key, priority, value; priority may be missing. Of lines with equal keys the last one
// counts. Other keys of the page stay. Any other line fails the import, with its number, and leaves
// the page unchanged. Exclude, Checksum and Warn are not used; DryRun is refused.
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
func (im *importer) line(ctx context.Context, lines *lineReader) error {
	priority := ledger.Eager
	if lines.lazy || im.options.Lazy {
		priority = ledger.Lazy
	}
	_, err := im.base.Stat(ctx, lines.key)
	known := err == nil
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	head := make([]byte, smallBytes)
	got, err := io.ReadFull(lines.value, head)
	im.addBytes(int64(got))
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = im.tx.PutPriority(ctx, lines.key, head[:got], priority)
	case err == nil:
		rest := &countReader{lines.value, im.addBytes}
		err = im.tx.PutReader(ctx, lines.key, io.MultiReader(bytes.NewReader(head), rest), -1, priority)
	}
	if err != nil {
		return err
	}
	if err := lines.end(); err != nil {
		return err
	}
	im.progress.Path = string(lines.key)
	im.doneFile()
	return im.count(ctx, known, lines.key)
}

// countReader reports how much is read.
type countReader struct {
	r    io.Reader
	read func(int64)
}

// Read implements io.Reader.
func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read(int64(n))
	return n, err
}

// lineReader reads JSON lines. After next, key and lazy are those of the line, and value reads its
// value; then the caller must call end.
type lineReader struct {
	in     *bufio.Reader
	number int // of the line, from 1
	key    []byte
	lazy   bool
	value  io.Reader
	object bool // the value is written as {"base64":...}
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, 64<<10)}
}

// syntaxError reports a line that ExportJSONLines would not write.
func syntaxError(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ledger.ErrInvalid)...)
}

// next reads up to the value of the next line that is not empty. It returns io.EOF at the end.
func (l *lineReader) next() error {
	l.number++
	for {
		c, err := l.in.ReadByte()
		if err != nil {
			return err
		}
		switch c {
		case '\n':
			l.number++
			continue
		case ' ', '\t', '\r':
			continue
		case '{':
			err := l.members()
			if errors.Is(err, io.EOF) {
				return syntaxError("read line: it ends too early")
			}
			return err
		}
		return syntaxError("read line: it begins with %q, want an object with key and value", c)
	}
}

// members reads key and priority, and the beginning of the value.
func (l *lineReader) members() error {
	l.key, l.lazy, l.value = nil, false, nil
	prioritized := false
	for want := "key"; ; {
		name, err := l.name()
		switch {
		case err != nil:
		case name == want && want == "key":
			want, err = "value", l.readKey()
		case name == "priority" && want == "value" && !prioritized:
			prioritized, err = true, l.readPriority()
		case name == want:
			l.value, l.object, err = l.bytes()
			return err
		default:
			err = syntaxError("read line: member %q where %q must be", name, want)
		}
		if err == nil {
			err = l.token(',')
		}
		if err != nil {
			return err
		}
	}
}

func (l *lineReader) readKey() error {
	r, object, err := l.bytes()
	if err == nil {
		l.key, err = io.ReadAll(io.LimitReader(r, maxKeyBytes+1))
	}
	if err == nil && len(l.key) > maxKeyBytes {
		err = fmt.Errorf("read key: it has more than %d bytes: %w", maxKeyBytes, ledger.ErrTooLarge)
	}
	if err != nil {
		return err
	}
	return l.close(object)
}

func (l *lineReader) readPriority() error {
	priority, err := l.shortString()
	if err != nil {
		return err
	}
	switch priority {
	case ledger.Lazy.String():
		l.lazy = true
	case ledger.Eager.String():
	default:
		return syntaxError("read line: priority %q is neither %q nor %q", priority, ledger.Eager, ledger.Lazy)
	}
	return nil
}

// end reads the rest of the line after the value.
func (l *lineReader) end() error {
	if _, err := io.Copy(io.Discard, l.value); err != nil {
		return err
	}
	if err := l.close(l.object); err != nil {
		return err
	}
	if err := l.token('}'); err != nil {
		return err
	}
	for {
		c, err := l.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF) || err == nil && c == '\n':
			return nil
		case err != nil:
			return err
		case c != ' ' && c != '\t' && c != '\r':
			return syntaxError("read line: %q behind the object", c)
		}
	}
}

// close reads the brace after {"base64":"...".
func (l *lineReader) close(object bool) error {
	if !object {
		return nil
	}
	return l.token('}')
}

// name reads a member's name and the colon.
func (l *lineReader) name() (string, error) {
	name, err := l.shortString()
	if err != nil {
		return "", err
	}
	return name, l.token(':')
}

// shortString reads a string that belongs to the format.
func (l *lineReader) shortString() (string, error) {
	if err := l.token('"'); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(&stringReader{in: l.in}, 32))
	if err == nil && len(b) == 32 {
		return "", syntaxError("read line: unknown word %q", b)
	}
	return string(b), err
}

// bytes begins a string or {"base64":"..."}.
func (l *lineReader) bytes() (r io.Reader, object bool, err error) {
	c, err := l.space()
	if err != nil {
		return nil, false, err
	}
	switch c {
	case '"':
		return &stringReader{in: l.in}, false, nil
	case '{':
		name, err := l.name()
		if err != nil {
			return nil, false, err
		}
		if name != "base64" {
			return nil, false, syntaxError("read line: member %q where %q must be", name, "base64")
		}
		if err := l.token('"'); err != nil {
			return nil, false, err
		}
		return newBase64Reader(&stringReader{in: l.in}), true, nil
	}
	return nil, false, syntaxError(`read line: %q where a string or {"base64":"..."} must be`, c)
}

// token reads white space and the character c.
func (l *lineReader) token(c byte) error {
	got, err := l.space()
	if err != nil {
		return err
	}
	if got != c {
		return syntaxError("read line: %q where %q must be", got, c)
	}
	return nil
}

// space returns the first character that is not white space. A line break is not white space here.
func (l *lineReader) space() (byte, error) {
	for {
		c, err := l.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, syntaxError("read line: it ends too early")
		}
		if err != nil || c != ' ' && c != '\t' && c != '\r' {
			return c, err
		}
	}
}

// stringReader decodes the inside of a JSON string and stops after the closing quote.
type stringReader struct {
	in   *bufio.Reader
	rest []byte // decoded and not yet read
	buf  [utf8.UTFMax]byte
	err  error
}

// Read implements io.Reader.
func (s *stringReader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && s.err == nil && (n == 0 || s.in.Buffered() > 0) {
		if len(s.rest) == 0 {
			s.err = s.decode()
		}
		c := copy(p[n:], s.rest)
		s.rest = s.rest[c:]
		n += c
	}
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, s.err
}

// decode decodes one rune into rest.
func (s *stringReader) decode() error {
	r, size, err := s.in.ReadRune()
	switch {
	case err != nil:
	case r == '"':
		return io.EOF
	case r < 0x20:
		return syntaxError("read string: control character %#02x, want it escaped", r)
	case r == utf8.RuneError && size == 1:
		return syntaxError("read string: it is not UTF-8")
	case r == '\\':
		r, err = s.escape()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return syntaxError("read string: it ends too early")
	}
	s.rest = s.buf[:utf8.EncodeRune(s.buf[:], r)]
	return err
}

// escape decodes the part after a backslash.
func (s *stringReader) escape() (rune, error) {
	c, err := s.in.ReadByte()
	if i := strings.IndexByte(`"\/bfnrt`, c); err != nil || i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[max(i, 0)]), err
	}
	if c != 'u' {
		return 0, syntaxError("read string: unknown escape \\%c", c)
	}
	r, err := s.unit()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	var mark [2]byte
	if _, err := io.ReadFull(s.in, mark[:]); err != nil || string(mark[:]) != `\u` {
		return 0, cmp.Or(err, syntaxError("read string: half a surrogate pair"))
	}
	low, err := s.unit()
	if r = utf16.DecodeRune(r, low); err == nil && r == utf8.RuneError {
		err = syntaxError("read string: half a surrogate pair")
	}
	return r, err
}

// unit reads the four digits of \uXXXX.
func (s *stringReader) unit() (rune, error) {
	var digits [4]byte
	if _, err := io.ReadFull(s.in, digits[:]); err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		err = syntaxError("read string: %q has a character that is no hexadecimal digit", digits)
	}
	return rune(n), err
}

// base64Reader decodes standard base64 with padding, and reports invalid text as a syntax error.
type base64Reader struct {
	decoder io.Reader
}

func newBase64Reader(s *stringReader) io.Reader {
	return &base64Reader{base64.NewDecoder(base64.StdEncoding.Strict(), oneLine{s})}
}

// Read implements io.Reader.
func (b *base64Reader) Read(p []byte) (int, error) {
	n, err := b.decoder.Read(p)
	if _, bad := errors.AsType[base64.CorruptInputError](err); bad || errors.Is(err, io.ErrUnexpectedEOF) {
		err = syntaxError("read base64: %v", err)
	}
	return n, err
}

// oneLine refuses line breaks, which package base64 would skip.
type oneLine struct{ r io.Reader }

// Read implements io.Reader.
func (o oneLine) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	if bytes.ContainsAny(p[:n], "\r\n") {
		return 0, syntaxError("read base64: line break")
	}
	return n, err
}
