package cli

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestObjectsArePrintedByTheirNames prints objects as lines, blocks and tables, and with --json.
func TestObjectsArePrintedByTheirNames(t *testing.T) {
	at := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	row := func(id string, n int, own bool) object {
		return object{"id", id, "hidden!", 1, "entries", n, "label?", "", "own", own}
	}
	o := object{
		"page", "a\x01b", "secret!", "x", "deletedBytes", size(2048), "commits", 1, "indexes", 1, "entries", 2, "kept", 0, "inCloud", true,
		"classA", 3, "reason?", plain("because"), "error", errors.New("broken"), "at", at, "never?", time.Time{},
		"slots", []object{row("x", 10, false), row("long", 5, true)}, "inner", object{"tags", []string{"v1", "v2"}}, "only~", "people",
	}
	for _, c := range []struct {
		name string
		json bool
		show func(*app)
		want string
	}{
		{"line", false, func(a *app) { a.show(o) },
			`a\x01b: 2.0 KiB deleted, 1 commit, 1 index, 2 entries, in cloud, class A 3, because, error broken, at 2024-05-01 12:00:00, 2 slots, inner tags v1, v2, only people` + "\n" +
				"  x: 10 entries\n  long: 5 entries, own\n"},
		{"outcome", false, func(a *app) { a.outcome(false, "cut", row("x", 1, false)) }, "x: cut, 1 entry\n"},
		{"dry outcome", false, func(a *app) { a.outcome(true, "cut", row("x", 1, false)) }, "x: to be cut, 1 entry\n"},
		{"block", false, func(a *app) {
			a.block("", object{"deletedBytes", size(1), "kept", 0, "own", false, "inner", object{"at", at}, "slots", o[len(o)-5]})
		},
			"deleted bytes  1 B\nkept           0\ninner\n  at  2024-05-01 12:00:00\n\nid    entries  own\nx          10\nlong        5  yes\n"},
		{"json", true, func(a *app) { a.outcome(true, "cut", row("x", 1, false)) }, `{"id":"x","hidden":1,"entries":1,"own":false,"dryRun":true}` + "\n"},
	} {
		var b bytes.Buffer
		a := &app{json: c.json, out: newOutput(&b)}
		c.show(a)
		if err := errors.Join(a.out.broken, a.out.Flush()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
