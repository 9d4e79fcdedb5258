package gcs

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/api/option/internaloption"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

const (
	// chunkBytes is the length beyond which an upload is made in chunks, and that of each chunk.
	chunkBytes = 16 << 20
	// maxPages bounds the requests of one List, which needs more than one only if foreign names are
	// among ours.
	maxPages = 1000
	// headerTimeout is how long a server may take to begin its answer.
	headerTimeout = time.Minute
)

// Options are the options of Open. The zero value is useful.
type Options struct {
	// CredentialsFile is the file of a service account; "": the application default credentials.
	CredentialsFile string
}

// Bucket is a bucket.Bucket in Google Cloud Storage.
type Bucket struct {
	client    *storage.Client
	handle    *storage.BucketHandle
	transport *counted
	url       string
	prefix    bucket.Prefix
}

var _ bucket.Bucket = (*Bucket)(nil)

// Opener opens buckets for a repository: it is a bucket.Opener. Errors: as Open.
func Opener(ctx context.Context, url string, o bucket.OpenOptions) (bucket.Bucket, error) {
	b, err := Open(ctx, url, Options{CredentialsFile: o.CredentialsFile})
	if err != nil {
		return nil, err // not b: a nil of its type is no nil Bucket
	}
	return b, nil
}

// Open returns the bucket of a URL gs://bucket or gs://bucket/prefix, where prefix is a legal name.
// It makes no request to the store. Finding credentials may take one to the machine's own service,
// of a few seconds; the first request fetches tokens. The caller closes the Bucket. Errors:
// base.ErrInvalid, fs.ErrPermission if there are no usable credentials.
func Open(ctx context.Context, url string, o Options) (*Bucket, error) {
	name, prefix, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	// Tokens are fetched under the context of the request that needs one. The older library keeps
	// the context of Open, which ends before the first token does.
	auth := []option.ClientOption{option.WithScopes(storage.ScopeReadWrite), internaloption.EnableNewAuthLibrary()}
	switch {
	case os.Getenv("STORAGE_EMULATOR_HOST") != "":
		auth = []option.ClientOption{option.WithoutAuthentication()}
	case o.CredentialsFile != "":
		auth = append(auth, option.WithAuthCredentialsFile(option.ServiceAccount, o.CredentialsFile))
	}
	transport, err := newTransport(context.WithoutCancel(ctx), auth)
	if err != nil {
		return nil, fmt.Errorf("find credentials for %s: %w: %w", url, os.ErrPermission, err)
	}
	client, err := storage.NewClient(context.WithoutCancel(ctx), option.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", url, err)
	}
	client.SetRetry(storage.WithPolicy(storage.RetryNever))
	return &Bucket{client: client, handle: client.Bucket(name), transport: transport, url: url, prefix: prefix}, nil
}

// parse returns the name of the bucket and the prefix.
func parse(url string) (string, bucket.Prefix, error) {
	rest, ok := strings.CutPrefix(url, "gs://")
	name, path, _ := strings.Cut(rest, "/")
	if !ok || len(name) < 3 || len(name) > 222 || bucket.CheckName(name) != nil {
		return "", "", fmt.Errorf("%w: %q is not gs://bucket or gs://bucket/prefix", base.ErrInvalid, url)
	}
	prefix, err := bucket.ParsePrefix(path)
	if err != nil {
		return "", "", fmt.Errorf("prefix of %q: %w", url, err)
	}
	return name, prefix, nil
}

// Close releases connections. Calls after it fail.
func (b *Bucket) Close() error {
	b.transport.close()
	return b.client.Close()
}

// String returns the URL.
func (b *Bucket) String() string { return b.url }

// PutIfAbsent implements bucket.Bucket.
func (b *Bucket) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := b.prefix.Check(bucket.OpPut, name, b.transport.closed.Load(), bucket.CheckPut(ctx, name, size)); err != nil {
		return err
	}
	crc := crc32.New(castagnoli)
	src := bucket.NewUpload(ctx, io.TeeReader(content, crc), size)
	uploadCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	if size <= chunkBytes {
		uploadCtx = withContent(uploadCtx, src) // a longer upload does not begin its last chunk
	}
	w := b.handle.Object(b.prefix.Key(name)).If(storage.Conditions{DoesNotExist: true}).NewWriter(uploadCtx)
	w.ContentType = "application/octet-stream" // otherwise the client library examines the content
	if w.ChunkSize = 0; size > chunkBytes {
		w.ChunkSize = chunkBytes
	}
	_, _ = io.Copy(w, src) // Close returns the errors of w again
	if src.Err() != nil {
		cancel() // the upload is not complete, and never will be: see wholeBody
		_ = w.Close()
		return bucket.NewError(ctx, bucket.OpPut, name, false, src.Err())
	}
	if err := w.Close(); err != nil {
		return mapError(ctx, bucket.OpPut, name, err)
	}
	attrs := w.Attrs()
	if attrs == nil || attrs.Size != size || attrs.CRC32C != crc.Sum32() {
		return &bucket.Error{Op: bucket.OpPut, Name: name, Class: bucket.ClassCorrupt, Ambiguous: true, Err: errors.New("what the server has stored is not what was sent")}
	}
	bucket.ReportCreated(ctx, attrs.Created)
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if err := b.prefix.Check(bucket.OpGet, name, b.transport.closed.Load(), bucket.CheckGet(ctx, name, off)); err != nil {
		return bucket.Object{}, err
	}
	if n < 0 {
		n = -1
	}
	// For zero bytes, the client library requests only the properties. A range of all bytes from 0
	// is requested as the whole object.
	answer := &answer{left: 1}
	r, err := b.handle.Object(b.prefix.Key(name)).ReadCompressed(true).NewRangeReader(withAnswer(ctx, answer), off, n)
	if err != nil {
		if err = mapError(ctx, bucket.OpGet, name, err); errors.Is(err, bucket.ErrRange) && off == 0 && n != 0 {
			return b.Get(ctx, name, 0, 0) // an empty object has no range at all
		}
		return bucket.Object{}, err
	}
	o := bucket.Object{Size: r.Attrs.Size, Created: r.Attrs.LastModified, ServerTime: answer.date}
	want, err := bucket.CheckRange(name, off, n, o.Size)
	if err == nil && (o.Size < 0 || n != 0 && (r.Remain() != want || r.Attrs.StartOffset != off)) {
		err = &bucket.Error{Op: bucket.OpGet, Name: name, Class: bucket.ClassCorrupt,
			Err: fmt.Errorf("asked for %d bytes from %d on, answered with %d from %d on, of %d", n, off, r.Remain(), r.Attrs.StartOffset, o.Size)}
	}
	if err != nil {
		return bucket.Object{}, errors.Join(err, r.Close())
	}
	// The context of Get bounds the body, as bucket.Bucket says.
	o.Body = bucket.NewBody(r, want, func(err error) error { return mapError(ctx, bucket.OpGet, name, err) })
	return o, nil
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if err := b.prefix.Check(bucket.OpList, prefix, b.transport.closed.Load(), bucket.CheckList(ctx, after, prefix, limit)); err != nil {
		return nil, err
	}
	q := &storage.Query{Prefix: b.prefix.Key(prefix), Projection: storage.ProjectionNoACL}
	if after != "" {
		q.StartOffset = b.prefix.Key(after) + "-" // the least byte of names: no legal name lies between
	}
	if err := q.SetAttrSelection([]string{"Name", "Size", "Created"}); err != nil {
		return nil, bucket.NewError(ctx, bucket.OpList, prefix, false, err)
	}
	it := b.handle.Objects(withAnswer(ctx, &answer{left: maxPages}), q)
	it.PageInfo().MaxSize = limit
	list := b.prefix.Listing(after, prefix)
	for len(list.Infos) < limit {
		a, err := it.Next()
		if err == iterator.Done {
			break
		}
		if err != nil {
			return nil, mapError(ctx, bucket.OpList, prefix, err)
		}
		if _, err := list.Add(a.Name, a.Size, a.Created); err != nil {
			return nil, err
		}
	}
	return list.Infos, nil
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	if err := b.prefix.Check(bucket.OpDelete, name, b.transport.closed.Load(), bucket.CheckDelete(ctx, name)); err != nil {
		return err
	}
	err := b.handle.Object(b.prefix.Key(name)).Delete(ctx)
	if err == nil || errors.Is(err, storage.ErrObjectNotExist) {
		return nil
	}
	return mapError(ctx, bucket.OpDelete, name, err)
}

// mapError classifies an error of the client library.
func mapError(ctx context.Context, op bucket.Op, name string, err error) error {
	if ctx.Err() != nil {
		return bucket.NewError(ctx, op, name, true, err)
	}
	e, ok := errors.AsType[*googleapi.Error](err)
	switch {
	case ok && e.Code == http.StatusRequestedRangeNotSatisfiable:
		err = fmt.Errorf("%w: %w", bucket.ErrRange, err)
	case ok && e.Code == http.StatusForbidden:
		for _, item := range e.Errors {
			switch item.Reason {
			case "rateLimitExceeded", "userRateLimitExceeded":
				return &bucket.Error{Op: op, Name: name, Class: bucket.ClassBusy, Status: e.Code, Ambiguous: op == bucket.OpPut || op == bucket.OpDelete, Err: err}
			case "quotaExceeded", "dailyLimitExceeded", "storageQuotaExceeded":
				return &bucket.Error{Op: op, Name: name, Class: bucket.ClassQuota, Status: e.Code, Err: err}
			}
		}
	case errors.Is(err, storage.ErrObjectNotExist), errors.Is(err, storage.ErrBucketNotExist):
		return &bucket.Error{Op: op, Name: name, Class: bucket.ClassNotFound, Status: http.StatusNotFound, Err: err}
	}
	if ok {
		return bucket.NewStatusError(op, name, e.Code, err)
	}
	if e, ok := errors.AsType[*auth.Error](err); ok { // no token, so nothing was sent
		class := bucket.ClassDenied
		if e.Temporary() {
			class = bucket.ClassRetryable
		}
		return &bucket.Error{Op: op, Name: name, Class: class, Err: err}
	}
	return bucket.NewClientError(ctx, op, name, err)
}
