package filetree

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
)

// ImportJSONLines puts an entry for every line of r, as ExportJSONLines writes them, in one
// transaction. Lines may have white space between tokens and may be empty. The members come in the
// order key, priority, value; priority may be missing. Of lines with equal keys the last one
// counts. Other keys of the page stay. A line that is anything else fails the import, with its
// number, and the page is as it was. Exclude, Checksum and Warn are not used.
func ImportJSONLines(ctx context.Context, page *ledger.Page, r io.Reader, o *ImportOptions) (Result, error) {
	return transact(ctx, page, o, func(im *importer) error {
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

// line puts the entry of the line that lines is at.
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
	n := int64(got)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = im.tx.PutPriority(ctx, lines.key, head[:got], priority)
	case err == nil:
		whole := &countReader{r: io.MultiReader(bytes.NewReader(head), lines.value)}
		err = im.tx.PutReader(ctx, lines.key, whole, -1, priority)
		n = whole.n
	}
	if err != nil {
		return err
	}
	if err := lines.end(); err != nil {
		return err
	}
	im.addBytes(n)
	im.progress.Files++
	im.progress.Path = string(lines.key)
	im.report()
	if !known {
		im.result.Added++
		return nil
	}
	equal, err := sameEntry(ctx, im.base, im.tx, lines.key)
	if err != nil {
		return err
	}
	if equal {
		im.result.Unchanged++
	} else {
		im.result.Changed++
	}
	return nil
}

type countReader struct {
	r io.Reader
	n int64
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// lineReader reads JSON lines. After next, key and lazy are those of the line, and value gives its
// value; then end must be called.
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

// syntaxError reports a line that is not what ExportJSONLines writes.
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
	if name, err := l.name(); err != nil || name != "key" {
		return errors.Join(err, wantMember(name, err, "key"))
	}
	if err := l.readKey(); err != nil {
		return err
	}
	if err := l.token(','); err != nil {
		return err
	}
	name, err := l.name()
	if err == nil && name == "priority" {
		if err := l.readPriority(); err != nil {
			return err
		}
		if err := l.token(','); err != nil {
			return err
		}
		name, err = l.name()
	}
	if err != nil || name != "value" {
		return errors.Join(err, wantMember(name, err, "value"))
	}
	l.value, l.object, err = l.bytes()
	return err
}

// wantMember returns an error when there is none yet.
func wantMember(name string, err error, want string) error {
	if err != nil {
		return nil
	}
	return syntaxError("read line: member %q where %q must be", name, want)
}

func (l *lineReader) readKey() error {
	r, object, err := l.bytes()
	if err != nil {
		return err
	}
	key, err := io.ReadAll(io.LimitReader(r, maxKeyBytes+1))
	if err != nil {
		return err
	}
	if len(key) > maxKeyBytes {
		return fmt.Errorf("read key: it has more than %d bytes: %w", maxKeyBytes, ledger.ErrTooLarge)
	}
	l.key = key
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

// end reads what is behind the value.
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

// close reads the brace behind {"base64":"...".
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

// shortString reads a string of the format itself.
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

// space returns the first character that is no white space. A line break is none here.
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

// stringReader decodes the inside of a JSON string and ends behind the closing quote.
type stringReader struct {
	in   *bufio.Reader
	rest []byte // decoded and not yet read
	buf  [utf8.UTFMax]byte
	err  error
}

// Read implements io.Reader.
func (s *stringReader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(s.rest) == 0 {
			if s.err != nil || n > 0 && s.in.Buffered() == 0 {
				break
			}
			if s.err = s.decode(); s.err != nil {
				break
			}
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
	case errors.Is(err, io.EOF):
		return syntaxError("read string: it ends too early")
	case err != nil:
		return err
	case r == '"':
		return io.EOF
	case r < 0x20:
		return syntaxError("read string: control character %#02x, want it escaped", r)
	case r == utf8.RuneError && size == 1:
		return syntaxError("read string: it is not UTF-8")
	case r == '\\':
		if r, err = s.escape(); err != nil {
			return err
		}
	}
	s.rest = s.buf[:utf8.EncodeRune(s.buf[:], r)]
	return nil
}

// escape decodes what follows a backslash.
func (s *stringReader) escape() (rune, error) {
	c, err := s.in.ReadByte()
	if err != nil {
		return 0, early(err)
	}
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return s.unicode()
	}
	return 0, syntaxError("read string: unknown escape \\%c", c)
}

// unicode decodes the digits of \uXXXX, and the second half of a surrogate pair.
func (s *stringReader) unicode() (rune, error) {
	r, err := s.digits()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	for _, want := range []byte(`\u`) {
		if c, err := s.in.ReadByte(); err != nil || c != want {
			return 0, errors.Join(early(err), syntaxError("read string: half a surrogate pair"))
		}
	}
	low, err := s.digits()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, syntaxError("read string: half a surrogate pair")
	}
	return r, nil
}

func (s *stringReader) digits() (rune, error) {
	var r rune
	for range 4 {
		c, err := s.in.ReadByte()
		if err != nil {
			return 0, early(err)
		}
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, syntaxError("read string: %q is no hexadecimal digit", c)
		}
		r = r<<4 | rune(c)
	}
	return r, nil
}

// early turns the end of the input into an error that says so.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return syntaxError("read string: it ends too early")
	}
	return err
}

// base64Reader decodes standard base64 with padding and tells errors of the text as such.
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
