package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/clock"
	"pgregory.net/rapid"
)

// Every page has a name that leads back to it, whatever its ledger and page are called.
func TestNamesComeBack(t *testing.T) {
	text := rapid.OneOf(rapid.StringN(1, 10, -1), rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 10), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"%", "a/b", "/", "%41", " ", "0123456789abcdef0123456789abcdef"}))
	rapid.Check(t, func(t *rapid.T) {
		l, p := text.Draw(t, "ledger"), text.Draw(t, "page")
		id := ledger.DerivePageID(l, p)
		name := nameOf(l, p, id)
		if !isPrintable(name) || strings.Contains(name, " ") {
			t.Fatalf("name %q is not printable", name)
		}
		back, err := parsePageName(name)
		if err != nil || back.ledger != l || back.page != p || back.id != nil || back.pageID() != id {
			t.Fatalf("page %q of %q is named %q, which is read as %+v, %v", p, l, name, back, err)
		}
		byID, err := parsePageName(nameOf(l, "", id))
		if err != nil || byID.ledger != l || byID.pageID() != id {
			t.Fatalf("page %s of %q is read as %+v, %v", id, l, byID, err)
		}
		root, err := parsePageName(nameOf(l, "", ledger.PageID{}))
		if err != nil || root.ledger != l || root.pageID() != (ledger.PageID{}) {
			t.Fatalf("root page of %q is read as %+v, %v", l, root, err)
		}
	})
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{sizeText(0), "0 B"}, {sizeText(1023), "1023 B"}, {sizeText(1024), "1.0 KiB"}, {sizeText(1024*1024 - 1), "1.0 MiB"},
		{sizeText(1 << 40), "1.0 TiB"}, {sizeText(1<<63 - 1), "8.0 EiB"}, {sizeText(-2048), "-2.0 KiB"},
		{countText(1, "keys"), "1 key"}, {countText(2, "keys"), "2 keys"}, {countText(2, "commits"), "2 commits"}, {countText(0, "entries"), "0 entries"},
		{durationText(65 * time.Second), "1:05"}, {durationText(2*time.Hour + 10*time.Second), "2:00:10"},
		{quoted("plain"), "plain"}, {quoted("two words"), "two words"}, {quoted(""), `""`}, {quoted(" x"), `" x"`}, {quoted("a\nb"), `"a\nb"`},
		{printable("a\x1bb\"c"), `a\x1bb"c`},
		{shellQuote("plain/path"), "plain/path"}, {shellQuote("it's"), `'it'\''s'`}, {shellQuote(""), "''"}, {shellQuote("$x"), "'$x'"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		state   counters
		elapsed time.Duration
		width   int
		want    string
	}{
		{counters{}, 0, 80, "importing 0 B"},
		{counters{files: 3, bytes: 2048, what: "a\x1b.txt"}, time.Second, 80, `importing 3 files, 2.0 KiB, 2.0 KiB/s  a\x1b.txt`},
		{counters{files: 25, totalFiles: 100, bytes: 1 << 20, totalBytes: 2 << 20}, 10 * time.Second, 80, "importing 25/100 files, 1.0 MiB of 2.0 MiB, 102.4 KiB/s, 0:30 left"},
		{counters{files: 25, what: "a/long/path"}, 0, 26, "importing 25 files, 0 B  …"},
	} {
		if got := progressLine("importing", "files", c.state, c.elapsed, c.width); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// The line is drawn while work goes on, and is gone afterwards.
func TestProgressDraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(t.Context(), &out, clock.System, func() int { return 80 }, "testing", "files")
		p.update(func(c *counters) { c.files, c.totalFiles, c.bytes, c.totalBytes = 1, 4, 1<<20, 4<<20 })
		tick, release := clock.System.After(progressEvery*21 + progressEvery/2)
		<-tick
		release()
		p.finish()
		lines := strings.Split(out.String(), "\r")
		if len(lines) != 23 || !strings.HasSuffix(lines[len(lines)-1], "\x1b[K") || !strings.Contains(lines[21], "1/4 files, 1.0 MiB of 4.0 MiB, 243.8 KiB/s, 0:13 left") {
			t.Errorf("drew %q", lines)
		}
	})
}

// Without a terminal there is no progress, and every call of it does nothing.
func TestNoProgress(t *testing.T) {
	a := &app{process: Process{Stderr: &bytes.Buffer{}, Clock: clock.System}}
	p := a.startProgress(t.Context(), "testing", "files")
	p.update(func(*counters) { t.Error("counted") })
	p.measure(t.Context(), func(context.Context) (int64, int64, error) { t.Error("measured"); return 0, 0, nil })()
	p.finish()
	if p != nil {
		t.Error("there is progress")
	}
}
