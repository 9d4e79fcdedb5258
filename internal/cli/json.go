package cli

import (
	"errors"
	"iter"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/filetree"
)

// jsonBytes are bytes as --json prints them: a string if they are UTF-8, else {"base64":"..."}.
type jsonBytes []byte

// MarshalJSON implements json.Marshaler.
func (b jsonBytes) MarshalJSON() ([]byte, error) { return filetree.AppendJSONBytes(nil, b), nil }

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

// result is print for the result of a verb, which --quiet omits.
func (a *app) result(j any, format string, args ...any) {
	if a.json || !a.quiet {
		a.print(j, format, args...)
	}
}

// commitObject is a commit as --json prints it.
func commitObject(c ledger.Commit, s admin.Sender, n names) object {
	return object{
		"commit", c.ID, "time", c.Time, "timestamp!", c.Timestamp, "generation", c.Generation, "root!", c.Root, "parents!", objects(c.Parents, ledger.CommitID.String),
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
	return object{"size", size(e.Size), "priority", e.Priority, "inline", e.Inline, "object?", e.Object}
}

// doneObject is the result of a verb that changes a page.
func doneObject(page *ledger.Page, commit ledger.CommitID, changed bool, merged object) object {
	return append(object{"page", pageText(page), "commit", commit, "changed", changed}, merged...)
}

// timeText formats a time: RFC 3339 in UTC, with fractional digits as needed.
func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
