package cli

import (
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

// jsonBytes are bytes as --json prints them: a string when they are UTF-8, {"base64":"..."}
// otherwise.
type jsonBytes []byte

// MarshalJSON implements json.Marshaler.
func (b jsonBytes) MarshalJSON() ([]byte, error) { return filetree.AppendJSONBytes(nil, b), nil }

// emit prints v as one line of JSON.
func (a *app) emit(v any) error {
	line, err := marshal(v)
	if err != nil {
		return err
	}
	a.out.Write(line)
	return a.out.WriteByte('\n')
}

// errText is the text of an error, "" for none.
func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// result prints what a verb has done: j with --json, else the text, which --quiet leaves out.
func (a *app) result(j any, format string, args ...any) error {
	switch {
	case a.json:
		return a.emit(j)
	case !a.quiet:
		a.printf(format, args...)
	}
	return nil
}

// commitJSON is a commit as --json prints it.
type commitJSON struct {
	Commit     string   `json:"commit"`
	Time       string   `json:"time"`
	Timestamp  int64    `json:"timestamp"`
	Generation uint64   `json:"generation"`
	Root       string   `json:"root"`
	Parents    []string `json:"parents"`
	Device     string   `json:"device,omitempty"`
	Sender     string   `json:"sender,omitempty"`
	Verified   bool     `json:"senderVerified,omitempty"`
	Message    string   `json:"message,omitempty"`
	Head       bool     `json:"head,omitempty"`
	Tags       []string `json:"tags,omitempty"`
}

func newCommitJSON(c ledger.Commit, n names) commitJSON {
	j := commitJSON{
		Commit: c.ID.String(), Time: timeText(c.Time), Timestamp: c.Timestamp, Generation: c.Generation, Root: c.Root,
		Parents: []string{}, Device: c.Device, Message: c.Message, Head: n.heads[c.ID], Tags: n.tags[c.ID],
	}
	for _, p := range c.Parents {
		j.Parents = append(j.Parents, p.String())
	}
	return j
}

// entryJSON is an entry as --json prints it.
type entryJSON struct {
	Key      jsonBytes `json:"key"`
	Size     int64     `json:"size"`
	Priority string    `json:"priority"`
	Inline   bool      `json:"inline"`
	Object   string    `json:"object,omitempty"`
	*attributesJSON
	Target *jsonBytes `json:"target,omitempty"`
}

// attributesJSON are the attributes of an imported file.
type attributesJSON struct {
	Type  string `json:"type"`
	Mode  string `json:"mode"`
	MTime string `json:"mtime,omitempty"`
}

func newEntryJSON(item filetree.Item) entryJSON {
	e := item.Entry
	return entryJSON{
		Key: e.Key, Size: e.Size, Priority: e.Priority.String(), Inline: e.Inline, Object: e.Object,
		attributesJSON: newAttributesJSON(item.Attributes),
	}
}

func newAttributesJSON(attributes *filetree.Attributes) *attributesJSON {
	if attributes == nil {
		return nil
	}
	j := &attributesJSON{Type: attributes.Type.String(), Mode: attributes.String()}
	if attributes.Type != filetree.Directory {
		j.MTime = timeText(attributes.ModTime)
	}
	return j
}

// doneJSON is the result of a verb that changes a page.
type doneJSON struct {
	Page    string `json:"page"`
	Commit  string `json:"commit"`
	Changed bool   `json:"changed"`
	mergedJSON
}

// timeText is a time as it is printed: RFC 3339 in UTC with as many digits as it has.
func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// committed prints the result of a verb that changes a page.
func (a *app) committed(page *ledger.Page, before, after ledger.CommitID, what string, merged mergedJSON) error {
	changed := before != after
	if a.json {
		return a.emit(doneJSON{Page: pageText(page), Commit: after.String(), Changed: changed, mergedJSON: merged})
	}
	switch {
	case a.quiet:
	case changed:
		a.printf("commit %s: %s\n", after.Short(), what)
	default:
		a.printf("nothing has changed since commit %s\n", after.Short())
	}
	return nil
}
