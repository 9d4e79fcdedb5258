package filetree

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
)

// ExportJSONLines writes every entry of a snapshot whose key begins with o.Prefix as one line of
// JSON, attributes entries included, in the order of keys:
//
//	{"key":KEY,"priority":"lazy","value":VALUE}
//
// Priority is only written when it is lazy. KEY and VALUE are strings when the bytes are valid
// UTF-8, and {"base64":"..."} otherwise. ImportJSONLines restores equal entries. Values are
// streamed, whatever their size, and read twice. With DryRun, entries are only counted, and w may
// be nil. Overwrite and Warn are not used. Errors: those of w and of ledger.Snapshot.
func ExportJSONLines(ctx context.Context, snap *ledger.Snapshot, w io.Writer, o *ExportOptions) (ExportResult, error) {
	e := &exporter{snap: snap}
	if o != nil {
		e.options = *o
	}
	out := bufio.NewWriterSize(w, 64<<10)
	for entry, err := range snap.Scan(ctx, ledger.ScanOptions{Prefix: e.options.Prefix}) {
		if err != nil {
			return e.result, err
		}
		if e.options.DryRun {
			e.result.Bytes += entry.Size
		} else if err := e.line(ctx, out, entry); err != nil {
			return e.result, fmt.Errorf("export %q: %w", entry.Key, err)
		}
		e.done(string(entry.Key))
	}
	if e.options.DryRun {
		return e.result, nil
	}
	return e.result, out.Flush()
}

func (e *exporter) line(ctx context.Context, out *bufio.Writer, entry ledger.Entry) error {
	out.WriteString(`{"key":`)
	out.Write(AppendJSONBytes(nil, entry.Key))
	if entry.Priority == ledger.Lazy {
		out.WriteString(`,"priority":"lazy"`)
	}
	out.WriteString(`,"value":`)
	if err := lineValue(ctx, out, entry); err != nil {
		return err
	}
	e.result.Bytes += entry.Size
	e.progress.Bytes += entry.Size
	_, err := out.WriteString("}\n") // bufio keeps the first error of all writes
	return err
}

func lineValue(ctx context.Context, out *bufio.Writer, entry ledger.Entry) error {
	if entry.Size <= smallBytes {
		value, err := entry.Value(ctx)
		if err != nil {
			return err
		}
		_, err = out.Write(AppendJSONBytes(nil, value))
		return err
	}
	value, err := entry.Open(ctx)
	if err != nil {
		return err
	}
	defer value.Close() // read-only: its error does not matter
	return WriteJSONValue(out, value)
}

// WriteJSONValue writes a value as a JSON string, or as {"base64":"..."} when it is not UTF-8. The
// value is streamed, and read twice. Errors: those of out and of value.
func WriteJSONValue(out *bufio.Writer, value io.ReadSeeker) error {
	text, err := isText(value)
	if err != nil {
		return err
	}
	if _, err := value.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if text {
		out.WriteByte('"')
		err = eachText(value, func(b []byte) error {
			_, err := out.Write(appendEscaped(nil, b))
			return err
		})
		return errors.Join(err, out.WriteByte('"'))
	}
	out.WriteString(`{"base64":"`)
	enc := base64.NewEncoder(base64.StdEncoding, out)
	if _, err := io.Copy(enc, value); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err = out.WriteString(`"}`)
	return err
}

// AppendJSONBytes appends b as JSON: a string when it is valid UTF-8, {"base64":"..."} otherwise.
func AppendJSONBytes(dst, b []byte) []byte {
	if !utf8.Valid(b) {
		dst = append(dst, `{"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, b)
		return append(dst, `"}`...)
	}
	dst = append(dst, '"')
	dst = appendEscaped(dst, b)
	return append(dst, '"')
}

// appendEscaped appends UTF-8 escaped for the inside of a JSON string.
func appendEscaped(dst, b []byte) []byte {
	for len(b) > 0 {
		c := b[0]
		switch c {
		case '"', '\\':
			dst, b = append(dst, '\\', c), b[1:]
			continue
		case '\n':
			dst, b = append(dst, `\n`...), b[1:]
			continue
		case '\r':
			dst, b = append(dst, `\r`...), b[1:]
			continue
		case '\t':
			dst, b = append(dst, `\t`...), b[1:]
			continue
		}
		dst, b = appendVisible(dst, b)
	}
	return dst
}

// EscapeJSON returns equivalent JSON without characters that affect a terminal: it writes control
// and format characters, among them those of C1 and those that change the direction of text, as \u
// sequences. In the output of encoding/json such characters are only inside strings.
func EscapeJSON(line []byte) []byte {
	if !bytes.ContainsFunc(line, acts) {
		return line
	}
	out := make([]byte, 0, len(line)+16)
	for len(line) > 0 {
		out, line = appendVisible(out, line)
	}
	return out
}

// acts reports whether a character affects the terminal instead of being shown.
func acts(r rune) bool {
	return r < 0x20 || r >= 0x7f && (unicode.In(r, unicode.Cc, unicode.Cf) || r == '\u2028' || r == '\u2029')
}

// appendVisible moves the first character of b, which is not empty, to dst, and escapes it when it
// affects a terminal.
func appendVisible(dst, b []byte) (to, rest []byte) {
	if b[0] >= 0x20 && b[0] < 0x7f {
		return append(dst, b[0]), b[1:]
	}
	r, size := utf8.DecodeRune(b)
	if !acts(r) {
		return append(dst, b[:size]...), b[size:]
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		dst = fmt.Appendf(dst, `\u%04x`, unit)
	}
	return dst, b[size:]
}

// isText reports whether all bytes of r are valid UTF-8.
func isText(r io.Reader) (bool, error) {
	err := eachText(r, func([]byte) error { return nil })
	if errors.Is(err, errNotText) {
		return false, nil
	}
	return err == nil, err
}

var errNotText = errors.New("not UTF-8")

// eachText calls fn with the bytes of r, in parts that end at the ends of runes. It fails with
// errNotText for other than UTF-8.
func eachText(r io.Reader, fn func([]byte) error) error {
	buf := make([]byte, smallBytes)
	kept := 0
	for {
		n, readErr := r.Read(buf[kept:])
		n += kept
		whole := n
		if readErr == nil {
			whole = wholeRunes(buf[:n])
		}
		if !utf8.Valid(buf[:whole]) {
			return errNotText
		}
		if err := fn(buf[:whole]); err != nil {
			return err
		}
		kept = copy(buf, buf[whole:n])
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}

// wholeRunes returns the length of b without an incomplete rune at its end.
func wholeRunes(b []byte) int {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}
