package s3

import (
	"context"
	"net/http"
	"time"
)

// answer is what a call learns from the transport. One goroutine at a time uses it.
type answer struct{ date time.Time }

type answerKey struct{}

func withAnswer(ctx context.Context, a *answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// askBytes is the length from which a server is asked whether it wants the content before that is
// sent. So content that is refused does not go up. A server that does not know the question and
// refuses may close the connection while the content is on its way; that is bucket.ClassAmbiguous,
// and the caller looks.
const askBytes = 256 << 10

// dated is a transport that notes the Date of the answer for calls under withAnswer.
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

// date returns the moment at which a server answered, by its own clock, zero where it does not say.
func date(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
