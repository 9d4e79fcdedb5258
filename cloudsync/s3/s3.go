package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

const (
	// headerTimeout is how long a server may think before it answers.
	headerTimeout = time.Minute
	// maxForeign bounds how many names of others one List passes over.
	maxForeign = 1_000_000
)

// Bucket is a bucket.Bucket in a store of S3's kind.
type Bucket struct {
	core      minio.Core
	transport *http.Transport
	closed    atomic.Bool
	name      string
	url       string
	prefix    string // before every name: empty, or ends with a slash
}

var _ bucket.Bucket = (*Bucket)(nil)

// Opener opens buckets for a repository: it is a bucket.Opener. It takes no credentials file.
// Errors: as Open.
func Opener(ctx context.Context, url string, o bucket.OpenOptions) (bucket.Bucket, error) {
	if o.CredentialsFile != "" {
		return nil, fmt.Errorf("open bucket %s: credentials come from the environment or a profile, not from a file of their own: %w", url, base.ErrInvalid)
	}
	b, err := Open(ctx, url)
	if err != nil {
		return nil, err // not b: a nil of its type is no nil Bucket
	}
	return b, nil
}

// Open returns the bucket of a URL s3://bucket/prefix or s3:https://host/bucket/prefix; the prefix, a
// legal name, may be absent. It makes no request. The caller closes the Bucket.
// Errors: base.ErrInvalid (the URL, or a file of profiles), those of reading the profile.
func Open(_ context.Context, url string) (*Bucket, error) {
	at, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	conf, err := configure(at.endpoint)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", url, err)
	}
	transport, err := minio.DefaultTransport(conf.secure)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", url, err)
	}
	transport.ResponseHeaderTimeout = headerTimeout
	transport.MaxIdleConnsPerHost = 64
	b := &Bucket{transport: transport, name: at.bucket, url: strings.TrimSuffix(url, "/"), prefix: at.prefix}
	client, err := minio.New(conf.host, &minio.Options{
		Creds: conf.credentials, Secure: conf.secure, Region: conf.region, Transport: dated{transport}, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w: %w", url, base.ErrInvalid, err)
	}
	b.core = minio.Core{Client: client}
	return b, nil
}

// Close releases connections. Calls after it fail.
func (b *Bucket) Close() error {
	b.closed.Store(true)
	b.transport.CloseIdleConnections()
	return nil
}

// String returns the URL.
func (b *Bucket) String() string { return b.url }

// check refuses names that are too long with the prefix.
func (b *Bucket) check(op bucket.Op, name string) error {
	if n := len(b.prefix) + len(name); n > bucket.MaxNameBytes && op != bucket.OpList {
		return &bucket.Error{Op: op, Name: name, Class: bucket.ClassInvalid, Err: fmt.Errorf("%w: name has %d bytes with the prefix, limit %d", base.ErrInvalid, n, bucket.MaxNameBytes)}
	}
	if b.closed.Load() {
		return &bucket.Error{Op: op, Name: name, Class: bucket.ClassOther, Err: base.ErrClosed}
	}
	return nil
}

// PutIfAbsent implements bucket.Bucket.
func (b *Bucket) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := bucket.CheckPut(ctx, name, size); err != nil {
		return err
	}
	if err := b.check(bucket.OpPut, name); err != nil {
		return err
	}
	src := &source{ctx: ctx, r: bucket.ReadExact(content, size)}
	if size == 0 { // the client library does not read what has no length
		if _, err := src.Read(make([]byte, 1)); err != io.EOF {
			return bucket.NewError(ctx, bucket.OpPut, name, false, src.err)
		}
	}
	// Signed chunks of nothing have a last chunk, which servers may leave on the connection.
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: size == 0}
	o.SetMatchETagExcept("*")
	answer := &answer{}
	_, err := b.core.PutObject(withAnswer(ctx, answer), b.name, b.prefix+name, src, size, "", "", o)
	if err != nil && src.err != nil { // the request was broken off before its end
		return bucket.NewError(ctx, bucket.OpPut, name, false, src.err)
	}
	if err != nil {
		return mapError(ctx, bucket.OpPut, name, err)
	}
	bucket.ReportCreated(ctx, answer.date)
	return nil
}

// source is the content on its way up. It remembers the error of the content, which is not that of the
// upload.
type source struct {
	ctx context.Context // that of the put
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if err := context.Cause(s.ctx); err != nil {
		s.err = err
		return 0, err
	}
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if err := bucket.CheckGet(ctx, name, off); err != nil {
		return bucket.Object{}, err
	}
	if err := b.check(bucket.OpGet, name); err != nil {
		return bucket.Object{}, err
	}
	if n == 0 {
		return b.stat(ctx, name, off)
	}
	var o minio.GetObjectOptions
	switch {
	case n > 0:
		o.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	case off > 0:
		o.Set("Range", fmt.Sprintf("bytes=%d-", off))
	}
	r, info, header, err := b.core.GetObject(ctx, b.name, b.prefix+name, o)
	if err != nil {
		if err = mapError(ctx, bucket.OpGet, name, err); errors.Is(err, bucket.ErrRange) && off == 0 {
			return b.stat(ctx, name, 0) // an empty object has no range at all
		}
		return bucket.Object{}, err
	}
	object := bucket.Object{Size: info.Size, Created: info.LastModified, ServerTime: date(header)}
	start := int64(0)
	if ranged := header.Get("Content-Range"); ranged != "" {
		start, object.Size = parseRange(ranged)
	}
	want, err := bucket.CheckRange(name, off, n, object.Size)
	if err == nil && (start != off || info.Size != want) {
		err = &bucket.Error{Op: bucket.OpGet, Name: name, Class: bucket.ClassCorrupt,
			Err: fmt.Errorf("asked for %d bytes from %d on, answered with %d from %d on, of %d", n, off, info.Size, start, object.Size)}
	}
	if err != nil {
		return bucket.Object{}, errors.Join(err, r.Close())
	}
	object.Body = &body{ctx: ctx, name: name, r: r, left: want}
	return object, nil
}

// stat is Get for no bytes.
func (b *Bucket) stat(ctx context.Context, name string, off int64) (bucket.Object, error) {
	answer := &answer{}
	info, err := b.core.StatObject(withAnswer(ctx, answer), b.name, b.prefix+name, minio.StatObjectOptions{})
	if err != nil {
		return bucket.Object{}, mapError(ctx, bucket.OpGet, name, err)
	}
	if _, err := bucket.CheckRange(name, off, 0, info.Size); err != nil {
		return bucket.Object{}, err
	}
	return bucket.Object{Body: http.NoBody, Size: info.Size, Created: info.LastModified, ServerTime: answer.date}, nil
}

// parseRange returns where a range begins and how long the whole object is, of "bytes 5-9/20". It returns
// -1 for what it cannot read.
func parseRange(s string) (start, size int64) {
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return -1
		}
		return n
	}
	span, all, _ := strings.Cut(strings.TrimPrefix(s, "bytes "), "/")
	first, _, _ := strings.Cut(span, "-")
	return number(first), number(all)
}

// body gives what a reader has, and an error when that ends early.
type body struct {
	ctx  context.Context // that of Get: it bounds the body, as bucket.Bucket says
	name string
	r    io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (y *body) Read(p []byte) (int, error) {
	if y.left == 0 {
		return 0, io.EOF
	}
	n, err := y.r.Read(p[:min(int64(len(p)), y.left)])
	y.left -= int64(n)
	switch {
	case err == nil, n > 0 && (err == io.EOF || y.left == 0):
		return n, nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, mapError(y.ctx, bucket.OpGet, y.name, err)
}

// Close implements io.Closer.
func (y *body) Close() error { return y.r.Close() }

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if err := bucket.CheckList(ctx, after, prefix, limit); err != nil {
		return nil, err
	}
	if err := b.check(bucket.OpList, prefix); err != nil {
		return nil, err
	}
	o := minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true, MaxKeys: limit}
	if after != "" {
		o.StartAfter = b.prefix + after
	}
	var infos []bucket.Info
	foreign := 0
	for a := range b.core.ListObjectsIter(ctx, b.name, o) {
		if a.Err != nil {
			return nil, mapError(ctx, bucket.OpList, prefix, a.Err)
		}
		name, ok := strings.CutPrefix(a.Key, b.prefix)
		if !ok || bucket.CheckName(name) != nil || name <= after || !strings.HasPrefix(name, prefix) {
			if foreign++; foreign > maxForeign {
				return nil, &bucket.Error{Op: bucket.OpList, Name: prefix, Class: bucket.ClassInvalid, Err: fmt.Errorf("%w: over %d objects of others are among ours", base.ErrInvalid, maxForeign)}
			}
			continue // not ours
		}
		if n := len(infos); n > 0 && infos[n-1].Name >= name {
			return nil, &bucket.Error{Op: bucket.OpList, Name: prefix, Class: bucket.ClassCorrupt, Err: fmt.Errorf("%q is listed after %q", name, infos[n-1].Name)}
		}
		if infos = append(infos, bucket.Info{Name: name, Size: a.Size, Created: a.LastModified}); len(infos) == limit {
			break
		}
	}
	if err := context.Cause(ctx); err != nil && len(infos) < limit {
		return nil, bucket.NewError(ctx, bucket.OpList, prefix, false, err)
	}
	return infos, nil
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	if err := bucket.CheckDelete(ctx, name); err != nil {
		return err
	}
	if err := b.check(bucket.OpDelete, name); err != nil {
		return err
	}
	err := b.core.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
	if err = mapError(ctx, bucket.OpDelete, name, err); bucket.ClassOf(err) == bucket.ClassNotFound && minio.ToErrorResponse(err).Code != minio.NoSuchBucket {
		return nil
	}
	return err
}

// mapError classifies what the client library says. It returns nil for nil.
func mapError(ctx context.Context, op bucket.Op, name string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[minio.ErrorResponse](err)
	if ctx.Err() != nil || !ok {
		mapped := bucket.NewError(ctx, op, name, true, err)
		if m, ok := errors.AsType[*bucket.Error](mapped); ok && m.Class == bucket.ClassOther {
			m.Class = bucket.ClassCorrupt // no trouble of the network, so an answer that the client library cannot use
		}
		return mapped
	}
	status := e.StatusCode
	switch e.Code {
	case "RequestTimeout": // which comes as 400
		status = http.StatusRequestTimeout
	case "SlowDown", "TooManyRequests", "ThrottlingException":
		status = http.StatusTooManyRequests
	case "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull", "StorageCapExceeded":
		status = http.StatusInsufficientStorage
	case minio.NoSuchKey, minio.NoSuchBucket:
		status = http.StatusNotFound
	case "PreconditionFailed":
		status = http.StatusPreconditionFailed
	}
	if status == http.StatusRequestedRangeNotSatisfiable {
		err = fmt.Errorf("%w: %w", bucket.ErrRange, err)
	}
	return bucket.NewStatusError(op, name, status, err)
}
