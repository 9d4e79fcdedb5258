package gcs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

// counted is a transport that, for calls under withAnswer, records the Date of the answer and
// limits the number of requests. Otherwise the client library would repeat requests without end
// when a body breaks off, or while the pages of a list are empty.
type counted struct {
	next   http.RoundTripper
	base   *http.Transport
	closed atomic.Bool
}

func newTransport(ctx context.Context, auth []option.ClientOption) (*counted, error) {
	plain, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		plain = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	plain = plain.Clone()
	plain.ResponseHeaderTimeout = headerTimeout
	plain.MaxIdleConnsPerHost = 64
	plain.DisableCompression = true
	next, err := htransport.NewTransport(ctx, plain, auth...)
	if err != nil {
		return nil, err
	}
	return &counted{next: next, base: plain}, nil
}

func (t *counted) close() {
	t.closed.Store(true)
	t.base.CloseIdleConnections()
}

// answer passes results from the transport to a call. One goroutine at a time uses it.
type answer struct {
	left int // requests that are still allowed
	date time.Time
	err  error // of the body
}

type answerKey struct{}

func withAnswer(ctx context.Context, a *answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

var errTooMany = fmt.Errorf("%w: more requests than the call should need", base.ErrCorrupt)

type contentKey struct{}

// withContent returns a context under which the upload of src in one request is complete only if
// all of src was read.
func withContent(ctx context.Context, src *bucket.Upload) context.Context {
	return context.WithValue(ctx, contentKey{}, src)
}

// tailBytes is more than what the client library writes after the content: the last boundary.
const tailBytes = 256

var errNotWhole = errors.New("the content is not whole")

// wholeBody is the body of an upload. It holds its end back until the content is complete. If the
// content breaks off, or the caller leaves, the client library closes the body as if it were
// complete, at about the time of canceling the request. A server that reads that end first would
// store a part of the content.
type wholeBody struct {
	src  *bucket.Upload
	r    *bufio.Reader
	body io.Closer
}

// Read implements io.Reader.
func (b *wholeBody) Read(p []byte) (int, error) {
	switch _, err := b.r.Peek(tailBytes + 1); {
	case err == nil:
		return b.r.Read(p[:min(len(p), b.r.Buffered()-tailBytes)])
	case err != io.EOF:
		return 0, err
	case !b.src.Whole():
		return 0, errNotWhole
	}
	return b.r.Read(p)
}

// Close implements io.Closer.
func (b *wholeBody) Close() error { return b.body.Close() }

// RoundTrip implements http.RoundTripper.
func (t *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if src, ok := r.Context().Value(contentKey{}).(*bucket.Upload); ok && r.Body != nil {
		r = r.WithContext(r.Context())
		r.Body = &wholeBody{src, bufio.NewReaderSize(r.Body, 32<<10), r.Body}
	}
	a, ok := r.Context().Value(answerKey{}).(*answer)
	if !ok {
		return t.next.RoundTrip(r)
	}
	if a.left <= 0 {
		if a.err != nil {
			return nil, a.err
		}
		return nil, errTooMany
	}
	a.left--
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.date = date
	}
	resp.Body = &notingBody{resp.Body, a}
	return resp, nil
}

// notingBody records the error with which a body ended.
type notingBody struct {
	io.ReadCloser
	a *answer
}

func (b *notingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.a.err = err
	}
	return n, err
}
