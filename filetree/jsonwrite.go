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
	e := newExporter(snap, o)
	out := bufio.NewWriterSize(w, 64<<10)
	for entry, err := range snap.Scan(ctx, ledger.ScanOptions{Prefix: e.options.Prefix}) {
		if err != nil {
			return e.result(), err
		}
		if !e.options.DryRun {
			if err := writeLine(ctx, out, entry); err != nil {
				return e.result(), fmt.Errorf("export %q: %w", entry.Key, err)
			}
		}
		e.passed(entry.Size)
		e.done(string(entry.Key))
	}
	return e.result(), out.Flush()
}

func writeLine(ctx context.Context, out *bufio.Writer, entry ledger.Entry) error {
	out.WriteString(`{"key":`)
	out.Write(AppendJSONBytes(nil, entry.Key))
	if entry.Priority == ledger.Lazy {
		out.WriteString(`,"priority":"lazy"`)
	}
	out.WriteString(`,"value":`)
	if err := lineValue(ctx, out, entry); err != nil {
		return err
	}
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
		err = eachRune(value, func(r rune) error {
			_, err := out.Write(appendEscaped(out.AvailableBuffer(), r))
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
	for _, r := range string(b) {
		dst = appendEscaped(dst, r)
	}
	return append(dst, '"')
}

// appendEscaped appends a character for the inside of a JSON string.
func appendEscaped(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return appendVisible(dst, r)
}

// EscapeJSON returns equivalent JSON without characters that affect a terminal: it writes control
// and format characters, among them those of C1 and those that change the direction of text, as \u
// sequences. In the output of encoding/json such characters are only inside strings.
func EscapeJSON(line []byte) []byte {
	if !bytes.ContainsFunc(line, acts) {
		return line
	}
	out := make([]byte, 0, len(line)+16)
	for _, r := range string(line) {
		out = appendVisible(out, r)
	}
	return out
}

// acts reports whether a character affects the terminal instead of being shown.
func acts(r rune) bool {
	return r < 0x20 || r >= 0x7f && (unicode.In(r, unicode.Cc, unicode.Cf) || r == '\u2028' || r == '\u2029')
}

// appendVisible appends a character, escaped when it affects a terminal.
func appendVisible(dst []byte, r rune) []byte {
	if !acts(r) {
		return utf8.AppendRune(dst, r)
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		dst = fmt.Appendf(dst, `\u%04x`, unit)
	}
	return dst
}

// isText reports whether all bytes of r are valid UTF-8.
func isText(r io.Reader) (bool, error) {
	err := eachRune(r, func(rune) error { return nil })
	if errors.Is(err, errNotText) {
		return false, nil
	}
	return err == nil, err
}

var errNotText = errors.New("not UTF-8")

// eachRune calls fn with the characters of r. It fails with errNotText for other than UTF-8.
func eachRune(r io.Reader, fn func(rune) error) error {
	in := bufio.NewReaderSize(r, smallBytes)
	for {
		c, size, err := in.ReadRune()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil && c == utf8.RuneError && size == 1:
			err = errNotText
		case err == nil:
			err = fn(c)
		}
		if err != nil {
			return err
		}
	}
}
