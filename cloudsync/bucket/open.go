package bucket

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
)

// OpenOptions are the options of all openers. The zero value is useful.
type OpenOptions struct {
	// CredentialsFile is a file with credentials for stores that need some; "" means those of the
	// environment.
	CredentialsFile string
	// MustExist makes an opener that would create the bucket's place, such as a directory, fail
	// with base.ErrNotFound instead.
	MustExist bool
}

// Opener opens the bucket that a URL names. It makes as few requests as it can. The caller closes a
// Bucket that is also an io.Closer; see Close.
type Opener func(ctx context.Context, url string, o OpenOptions) (Bucket, error)

// Openers are the openers by scheme: the part of a URL before the first colon, in lower case
// letters and digits.
type Openers map[string]Opener

// Scheme returns the part of url before the first colon. Errors: base.ErrInvalid.
func Scheme(url string) (string, error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok || scheme == "" || rest == "" || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return "", fmt.Errorf("read bucket URL %q: %w: want scheme:rest, such as dir:/path, gs://bucket/prefix or s3://bucket/prefix", url, base.ErrInvalid)
	}
	return scheme, nil
}

// Check reports whether there is an opener for url. Errors: base.ErrInvalid, base.ErrUnsupported
// for a scheme without opener.
func (s Openers) Check(url string) error {
	scheme, err := Scheme(url)
	if err == nil && s[scheme] == nil {
		err = fmt.Errorf("open bucket %s: %w: this program knows %s", url, base.ErrUnsupported, s.schemes())
	}
	return err
}

// Open opens the bucket that url names. Errors: those of Check and of the opener.
func (s Openers) Open(ctx context.Context, url string, o OpenOptions) (Bucket, error) {
	if err := s.Check(url); err != nil {
		return nil, err
	}
	scheme, _ := Scheme(url)
	b, err := s[scheme](ctx, url, o)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", url, err)
	}
	return b, nil
}

func (s Openers) schemes() string {
	var names []string
	for name := range s {
		names = append(names, name+":")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Close closes b if it is an io.Closer. b may be nil.
func Close(b Bucket) error {
	if c, ok := b.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
