package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/filetree"
)

// jsonBytes are bytes as --json prints them: a string if they are UTF-8, else {"base64":"..."}.
type jsonBytes []byte

// MarshalJSON implements json.Marshaler.
func (b jsonBytes) MarshalJSON() ([]byte, error) { return filetree.AppendJSONBytes(nil, b), nil }

// object is a JSON object: names and values alternate, in the order of output. A member whose name
// ends in a question mark is omitted if its value is zero or empty.
type object []any

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte("{")
	for i := 0; i < len(o); i += 2 {
		name, optional := strings.CutSuffix(o[i].(string), "?")
		value := member(o[i+1])
		if optional && isNone(reflect.ValueOf(value)) {
			continue
		}
		text, err := marshal(value)
		if err != nil {
			return nil, err
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(strconv.AppendQuote(b, name), ':'), text...)
	}
	return append(b, '}'), nil
}

// isNone reports whether a value is zero or empty.
func isNone(v reflect.Value) bool {
	return !v.IsValid() || v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// member returns the value to encode: errors and ids become text, and the zero time becomes "".
func member(value any) any {
	switch v := value.(type) {
	case time.Time:
		return choose(v.IsZero(), "", timeText(v))
	case ledger.CommitID:
		return choose(v.IsZero(), "", v.String())
	case json.Marshaler:
		return v
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	return value
}

// objects applies fn to each element.
func objects[T, U any](all []T, fn func(T) U) []U {
	array := make([]U, len(all))
	for i, one := range all {
		array[i] = fn(one)
	}
	return array
}

// when returns the members if holds is true, else nil.
func when(holds bool, members ...any) object { return choose(holds, object(members), nil) }

// mapped is objects for a function that may fail.
func mapped[T, U any](all []T, fn func(T) (U, error)) ([]U, error) {
	array := make([]U, len(all))
	for i, one := range all {
		var err error
		if array[i], err = fn(one); err != nil {
			return nil, err
		}
	}
	return array, nil
}

// each calls do with each element of a sequence, up to the sequence's error.
func each[T any](all iter.Seq2[T, error], do func(T)) error {
	for one, err := range all {
		if err != nil {
			return err
		}
		do(one)
	}
	return nil
}

// emit prints v as one line of JSON. The output keeps an error, as with printf.
func (a *app) emit(v any) {
	line, err := marshal(v)
	a.out.broken = errors.Join(a.out.broken, err)
	a.out.Write(append(line, '\n'))
}

// print prints j with --json, else the text.
func (a *app) print(j any, format string, args ...any) {
	if a.json {
		a.emit(j)
	} else {
		a.printf(format, args...)
	}
}

// result prints the result of a verb: j with --json, else the text, unless --quiet is set.
func (a *app) result(j any, format string, args ...any) {
	a.outcome(false, j, format, args...)
}

// outcome is result for a verb with --dry-run. A dry run prints even with --quiet.
func (a *app) outcome(dry bool, j any, format string, args ...any) {
	if dry || a.json || !a.quiet {
		a.print(j, format, args...)
	}
}

// commitObject is a commit as --json prints it.
func commitObject(c ledger.Commit, s admin.Sender, n names) object {
	return object{
		"commit", c.ID, "time", c.Time, "timestamp", c.Timestamp, "generation", c.Generation, "root", c.Root, "parents", objects(c.Parents, ledger.CommitID.String),
		"device?", c.Device, "sender?", s.Device, "senderVerified?", s.Verified, "message?", c.Message, "head?", n.heads[c.ID], "tags?", n.tags[c.ID],
	}
}

// entryObject is an entry as --json prints it, with the attributes of an imported file.
func entryObject(item filetree.Item) object {
	e := item.Entry
	o := append(object{"key", jsonBytes(e.Key)}, sideObject(&e)...)
	if at := item.Attributes; at != nil {
		o = append(o, "type", at.Type.String(), "mode", at.String())
		if at.Type != filetree.Directory {
			o = append(o, "mtime", at.ModTime)
		}
	}
	return o
}

// sideObject is an entry without its key; nil for no entry.
func sideObject(e *ledger.Entry) object {
	if e == nil {
		return nil
	}
	return object{"size", e.Size, "priority", e.Priority, "inline", e.Inline, "object?", e.Object}
}

// doneObject is the result of a verb that changes a page.
func doneObject(page *ledger.Page, commit ledger.CommitID, changed bool, merged object) object {
	return append(object{"page", pageText(page), "commit", commit.String(), "changed", changed}, merged...)
}

// timeText formats a time: RFC 3339 in UTC, with fractional digits as needed.
func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// committed prints the result of a verb that changes a page. more has additional members for
// --json.
func (a *app) committed(page *ledger.Page, before, after ledger.CommitID, what string, more object) {
	a.result(doneObject(page, after, before != after, more), "%s\n", doneText(after, before != after, what))
}

// doneText describes the change of a page by a verb.
func doneText(commit ledger.CommitID, changed bool, what string) string {
	return choose(changed, "commit "+commit.Short()+": "+what, "nothing has changed since commit "+commit.Short())
}
