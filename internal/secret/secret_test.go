package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/secret"
)

const canary = "c4nary:Zq8/+one two?"

// forms are the ways in which a canary could appear in a text.
func forms() []string {
	b := []byte(canary)
	decimal := strings.Trim(fmt.Sprint(b), "[]")
	return []string{
		canary, hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)), base64.StdEncoding.EncodeToString(b), base64.URLEncoding.EncodeToString(b),
		base64.RawStdEncoding.EncodeToString(b), url.QueryEscape(canary), url.PathEscape(canary), decimal, strings.ReplaceAll(decimal, " ", ", "),
		strings.Trim(fmt.Sprintf("%#v", b), "[]byte{}"), fmt.Sprintf("% x", b), canary[:8],
	}
}

func mustNotShow(t *testing.T, how, text string) {
	t.Helper()
	for _, form := range forms() {
		if strings.Contains(text, form) {
			t.Errorf("%s shows the secret as %q: %q", how, form, text)
		}
	}
}

type inner struct{ hidden secret.Bytes }

type holder struct {
	Open   secret.Bytes
	hidden secret.Bytes
	list   []secret.Bytes
	named  map[string]secret.Bytes
	inner  *inner
	value  inner
	any    any
}

func held() map[string]any {
	s := secret.FromString(canary)
	h := holder{Open: s, hidden: s, list: []secret.Bytes{s}, named: map[string]secret.Bytes{"k": s}, inner: &inner{s}, value: inner{s}, any: s}
	return map[string]any{"itself": s, "pointer": &s, "struct": h, "pointer to struct": &h, "slice": h.list, "map": h.named, "inner": inner{s}}
}

func TestNothingPrintsASecret(t *testing.T) {
	verbs := []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%c", "%U", "%b", "%o", "%T", "%p", "%10.3s", "%w"}
	for what, v := range held() {
		for _, verb := range verbs {
			mustNotShow(t, what+" with "+verb, fmt.Sprintf(verb, v))
		}
		mustNotShow(t, what+" with Sprint", fmt.Sprint(v))
		err := fmt.Errorf("open bucket with %v: %w", v, errors.New("denied"))
		mustNotShow(t, what+" in an error", err.Error()+fmt.Sprintf("%+v", err))
	}
}

func TestNothingLogsASecret(t *testing.T) {
	var out bytes.Buffer
	opts := &slog.HandlerOptions{Level: slog.LevelDebug}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, opts), slog.NewJSONHandler(&out, opts)} {
		for what, v := range held() {
			out.Reset()
			log := slog.New(h)
			log.Debug("key", what, v)
			log.With(what, v).WithGroup("g").Info("key", slog.Group("in", what, v))
			mustNotShow(t, what+" logged", out.String())
		}
	}
}

func TestNothingMarshalsASecret(t *testing.T) {
	for what, v := range held() {
		if text, err := json.Marshal(v); err == nil {
			mustNotShow(t, what+" as JSON", string(text))
		}
		if text, err := xml.Marshal(v); err == nil {
			mustNotShow(t, what+" as XML", string(text))
		}
		var out bytes.Buffer
		if err := gob.NewEncoder(&out).Encode(v); err == nil {
			mustNotShow(t, what+" as gob", out.String())
		}
	}
	text, err := json.Marshal(map[string]secret.Bytes{"key": secret.FromString(canary)})
	if err != nil || string(text) != `{"key":"[secret]"}` {
		t.Errorf("JSON is %s, %v", text, err)
	}
}

// TestAPlainSliceWouldBeSeen shows that the search finds what it is to find.
func TestAPlainSliceWouldBeSeen(t *testing.T) {
	type careless struct{ key []byte }
	text := fmt.Sprintf("%+v", careless{[]byte(canary)})
	for _, form := range forms() {
		if strings.Contains(text, form) {
			return
		}
	}
	t.Errorf("not found in %q", text)
}

func TestBytes(t *testing.T) {
	own := []byte(canary)
	s := secret.New(own)
	own[0] = 'X'
	if string(s.Expose()) != canary || s.Len() != len(canary) || s.IsZero() {
		t.Error("a secret does not hold a copy")
	}
	if !s.Equal(secret.FromString(canary)) || s.Equal(secret.New(own)) || s.Equal(secret.Bytes{}) {
		t.Error("Equal is wrong")
	}
	var zero secret.Bytes
	if !zero.IsZero() || zero.Expose() != nil || !zero.Equal(secret.New(nil)) {
		t.Error("the zero secret is not empty")
	}
}
