package s3

import (
	"context"
	"net/http"
	"time"
)

// answer passes results from the transport to a call. One goroutine at a time uses it.
type answer struct{ date time.Time }

type answerKey struct{}

func withAnswer(ctx context.Context, a *answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// askBytes is the length from which a server is asked before the content is sent, so that refused
// content is not uploaded. A server that does not support the question and refuses may close the
// connection during the upload. That is an ambiguous error, and the caller looks.
const askBytes = 256 << 10

// dated is a transport that records the Date of the answer for calls under withAnswer.
type dated struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t dated) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && r.ContentLength >= askBytes {
		r = r.Clone(r.Context())
		r.Header.Set("Expect", "100-continue")
	}
	resp, err := t.next.RoundTrip(r)
	if a, ok := r.Context().Value(answerKey{}).(*answer); ok && err == nil {
		a.date = date(resp.Header)
	}
	return resp, err
}

// date returns when a server answered, by its own clock, or zero if the answer does not say.
func date(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
