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
	// headerTimeout is how long a server may take to begin its answer.
	headerTimeout = time.Minute
	// maxForeign bounds how many foreign names one List skips.
	maxForeign = 1_000_000
)

// Bucket is a bucket.Bucket in a store with the protocol of S3.
type Bucket struct {
	core      minio.Core
	transport *http.Transport
	closed    atomic.Bool
	name      string
	url       string
	prefix    bucket.Prefix
}

var _ bucket.Bucket = (*Bucket)(nil)

// Opener opens buckets for a repository: it is a bucket.Opener. It accepts no credentials file.
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

// Open returns the bucket of a URL s3://bucket/prefix or s3:https://host/bucket/prefix; the prefix,
// a legal name, may be absent. It makes no request. The caller closes the Bucket.
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

// PutIfAbsent implements bucket.Bucket.
func (b *Bucket) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := b.prefix.Check(bucket.OpPut, name, b.closed.Load(), bucket.CheckPut(ctx, name, size)); err != nil {
		return err
	}
	src := bucket.NewUpload(ctx, content, size)
	if size == 0 { // the client library does not read content of length 0
		if _, err := src.Read(make([]byte, 1)); err != io.EOF {
			return bucket.NewError(ctx, bucket.OpPut, name, false, src.Err())
		}
	}
	// Signed chunks of empty content have a last chunk, which servers may leave on the connection.
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: size == 0}
	o.SetMatchETagExcept("*")
	answer := &answer{}
	_, err := b.core.PutObject(withAnswer(ctx, answer), b.name, b.prefix.Key(name), src, size, "", "", o)
	if err != nil && src.Err() != nil { // the request was canceled before its end
		return bucket.NewError(ctx, bucket.OpPut, name, false, src.Err())
	}
	if err != nil {
		return mapError(ctx, bucket.OpPut, name, err)
	}
	bucket.ReportCreated(ctx, answer.date)
	return nil
}

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if err := b.prefix.Check(bucket.OpGet, name, b.closed.Load(), bucket.CheckGet(ctx, name, off)); err != nil {
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
	r, info, header, err := b.core.GetObject(ctx, b.name, b.prefix.Key(name), o)
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
	// The context of Get bounds the body, as bucket.Bucket says.
	object.Body = bucket.NewBody(r, want, func(err error) error { return mapError(ctx, bucket.OpGet, name, err) })
	return object, nil
}

// stat is Get for zero bytes.
func (b *Bucket) stat(ctx context.Context, name string, off int64) (bucket.Object, error) {
	answer := &answer{}
	info, err := b.core.StatObject(withAnswer(ctx, answer), b.name, b.prefix.Key(name), minio.StatObjectOptions{})
	if err != nil {
		return bucket.Object{}, mapError(ctx, bucket.OpGet, name, err)
	}
	if _, err := bucket.CheckRange(name, off, 0, info.Size); err != nil {
		return bucket.Object{}, err
	}
	return bucket.Object{Body: http.NoBody, Size: info.Size, Created: info.LastModified, ServerTime: answer.date}, nil
}

// parseRange returns the beginning of a range and the length of the whole object, from "bytes
// 5-9/20". It returns -1 for a number that it cannot read.
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

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if err := b.prefix.Check(bucket.OpList, prefix, b.closed.Load(), bucket.CheckList(ctx, after, prefix, limit)); err != nil {
		return nil, err
	}
	o := minio.ListObjectsOptions{Prefix: b.prefix.Key(prefix), Recursive: true, MaxKeys: limit}
	if after != "" {
		o.StartAfter = b.prefix.Key(after)
	}
	list := b.prefix.Listing(after, prefix)
	foreign := 0
	for a := range b.core.ListObjectsIter(ctx, b.name, o) {
		if a.Err != nil {
			return nil, mapError(ctx, bucket.OpList, prefix, a.Err)
		}
		ours, err := list.Add(a.Key, a.Size, a.LastModified)
		if err != nil {
			return nil, err
		}
		if len(list.Infos) == limit {
			break
		}
		if ours {
			continue
		}
		if foreign++; foreign > maxForeign {
			return nil, &bucket.Error{Op: bucket.OpList, Name: prefix, Class: bucket.ClassInvalid, Err: fmt.Errorf("%w: over %d objects of others are among ours", base.ErrInvalid, maxForeign)}
		}
	}
	if err := context.Cause(ctx); err != nil && len(list.Infos) < limit {
		return nil, bucket.NewError(ctx, bucket.OpList, prefix, false, err)
	}
	return list.Infos, nil
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	if err := b.prefix.Check(bucket.OpDelete, name, b.closed.Load(), bucket.CheckDelete(ctx, name)); err != nil {
		return err
	}
	err := b.core.RemoveObject(ctx, b.name, b.prefix.Key(name), minio.RemoveObjectOptions{})
	if err = mapError(ctx, bucket.OpDelete, name, err); bucket.ClassOf(err) == bucket.ClassNotFound && minio.ToErrorResponse(err).Code != minio.NoSuchBucket {
		return nil
	}
	return err
}

// mapError classifies an error of the client library. It returns nil for nil.
func mapError(ctx context.Context, op bucket.Op, name string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[minio.ErrorResponse](err)
	if ctx.Err() != nil || !ok {
		return bucket.NewClientError(ctx, op, name, err)
	}
	status := e.StatusCode
	switch e.Code {
	case "RequestTimeout": // sent with status 400
		status = http.StatusRequestTimeout
	case "SlowDown", "TooManyRequests", "ThrottlingException":
		status = http.StatusTooManyRequests
	case "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull", "StorageCapExceeded":
		status = http.StatusInsufficientStorage
	case minio.NoSuchKey, minio.NoSuchBucket:
		status = http.StatusNotFound
	case "PreconditionFailed":
		status = http.StatusPreconditionFailed
	default:
		if status == http.StatusNotFound { // it says that something else is absent, such as the user
			status = http.StatusForbidden
		}
	}
	if status == http.StatusRequestedRangeNotSatisfiable {
		err = fmt.Errorf("%w: %w", bucket.ErrRange, err)
	}
	return bucket.NewStatusError(op, name, status, err)
}
