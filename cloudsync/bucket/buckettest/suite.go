package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

// Options are the options of Run. The zero value is useful.
type Options struct {
	// HoldsContent says that the bucket keeps objects in the memory of this process, so that memory
	// use proves nothing.
	HoldsContent bool
	// LargeBytes is the length of the largest object; 64 MiB when 0.
	LargeBytes int64
	// Levels is how many parts the deepest name has; 0: 512.
	Levels int
	// Paths says that names are file paths: no name is a prefix of another one with a slash, and no
	// part of a name has more than 255 bytes.
	Paths bool
	// Hasty says that the store may refuse a put during the upload of its content, and close the
	// connection: then its answer may be lost.
	Hasty bool
	// MemoryBytes is how much memory a put and a get of the largest object may take; 0: 40 MiB.
	MemoryBytes uint64
}

// Run checks that the buckets that open returns keep every promise of bucket.Bucket. open is called
// once for each check and returns a bucket without objects; it may use t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) bucket.Bucket, o Options) {
	if o.LargeBytes == 0 {
		o.LargeBytes = 64 << 20
	}
	if o.Levels == 0 {
		o.Levels = bucket.MaxNameBytes / 2
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 40 << 20
	}
	for _, group := range []struct {
		name   string
		checks []check
	}{
		{"put", slices.Concat(putChecks, badContentChecks())}, {"get", getChecks}, {"list", listChecks()}, {"delete", deleteChecks}, {"context", contextChecks},
		{"names", nameChecks()}, {"concurrent", concurrentChecks}, {"large", largeChecks},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.checks {
				t.Run(c.name, func(t *testing.T) { c.run(&kit{T: t, b: open(t), o: o}) })
			}
		})
	}
	t.Run("probe", func(t *testing.T) {
		k := &kit{T: t, b: open(t), o: o}
		_, err := bucket.Probe(t.Context(), k.b, "some/where")
		k.noErr(err)
		if names := k.list("", "", bucket.MaxList); len(names) != 0 {
			t.Errorf("probe left %q", names)
		}
	})
}

type check struct {
	name string
	run  func(k *kit)
}

// kit is the environment of a check.
type kit struct {
	*testing.T
	b bucket.Bucket
	o Options
}

func (k *kit) noErr(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

// wants fails unless err is an *bucket.Error of the class that matches the sentinel.
func (k *kit) wants(err error, class bucket.Class, sentinel error) {
	k.Helper()
	if _, ok := errors.AsType[*bucket.Error](err); !ok || bucket.ClassOf(err) != class || !errors.Is(err, sentinel) {
		k.Fatalf("got error %v (%T, class %s), want class %s and %v", err, err, bucket.ClassOf(err), class, sentinel)
	}
}

func (k *kit) put(name, content string) {
	k.Helper()
	k.noErr(k.tryPut(name, content))
}

func (k *kit) tryPut(name, content string) error {
	return k.b.PutIfAbsent(k.Context(), name, int64(len(content)), strings.NewReader(content))
}

func (k *kit) read(name string, off, n int64) (string, bucket.Object, error) {
	o, err := k.b.Get(k.Context(), name, off, n)
	if err != nil {
		return "", o, err
	}
	got, err := io.ReadAll(o.Body)
	return string(got), o, errors.Join(err, o.Body.Close())
}

func (k *kit) holds(name, content string) {
	k.Helper()
	k.gives(name, 0, -1, content, int64(len(content)))
}

func (k *kit) gives(name string, off, n int64, want string, size int64) {
	k.Helper()
	got, o, err := k.read(name, off, n)
	k.noErr(err)
	if got != want || o.Size != size {
		k.Fatalf("get %s from %d, %d bytes: got %.40q (%d bytes) of %d, want %.40q (%d bytes) of %d", name, off, n, got, len(got), o.Size, want, len(want), size)
	}
}

func (k *kit) absent(name string) {
	k.Helper()
	_, _, err := k.read(name, 0, -1)
	k.wants(err, bucket.ClassNotFound, base.ErrNotFound)
	if slices.Contains(k.list("", "", bucket.MaxList), name) {
		k.Fatalf("%s is listed", name)
	}
}

func (k *kit) list(after, prefix string, limit int) []string {
	k.Helper()
	infos, err := k.b.List(k.Context(), after, prefix, limit)
	k.noErr(err)
	var names []string
	for _, i := range infos {
		names = append(names, i.Name)
	}
	return names
}

// noise returns n bytes that do not compress.
func noise(n int) string {
	r, b := rand.NewChaCha8([32]byte{1}), make([]byte, n)
	r.Read(b)
	return string(b)
}

var errContent = errors.New("content broke")

// dribble gives one byte, no byte, one byte, and so on.
type dribble struct {
	r     io.Reader
	calls int
}

func (d *dribble) Read(p []byte) (int, error) {
	if d.calls++; d.calls%2 == 0 || len(p) == 0 {
		return 0, nil
	}
	return d.r.Read(p[:1])
}

// goodNames returns legal names.
func goodNames(o Options) []string {
	names := []string{"a", "0", "_", "-", "a.b", ".a", "a.", "...", "a..b", "a/b/c", "con", "nul/aux.txt", "a/.b./c", "-/_/-", strings.Repeat("a", 255),
		strings.Repeat("b", 700) + "/" + strings.Repeat("c", 323), strings.Repeat("d", bucket.MaxNameBytes), strings.Repeat("e/", o.Levels-1) + "ee",
		"0123456789abcdefghijklmnopqrstuvwxyz._-/x", "tmp", "partial/x", "lost.found"}
	return o.possible(names)
}

// possible returns the names that the bucket can hold side by side.
func (o Options) possible(names []string) []string {
	if !o.Paths {
		return names
	}
	var out []string
	for _, n := range names {
		long := slices.ContainsFunc(strings.Split(n, "/"), func(part string) bool { return len(part) > 255 })
		if !long && !slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, n+"/") }) {
			out = append(out, n)
		}
	}
	return out
}

func badNames() []string {
	return []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "./a", "A", "a b", "a\\b", "a\x00b", "a\nb", "ä", "a%2fb", "c:a", "a+", "a=", "a~", "\xff",
		strings.Repeat("f", bucket.MaxNameBytes+1), "*", "a?b", "a#b"}
}

func nameChecks() []check {
	return []check{
		{"legal names are stored and told apart", func(k *kit) {
			names := goodNames(k.o)
			for _, n := range names {
				k.put(n, "content of "+n)
			}
			for _, n := range names {
				k.holds(n, "content of "+n)
			}
			slices.Sort(names)
			if got := k.list("", "", bucket.MaxList); !slices.Equal(got, names) {
				k.Fatalf("listed %.300q, want %.300q", got, names)
			}
			for _, n := range names {
				k.noErr(k.b.Delete(k.Context(), n))
				k.absent(n)
			}
		}},
		{"a name may be the start of another, with a slash", func(k *kit) {
			if k.o.Paths {
				k.Skip("names are paths of files")
			}
			k.put("a/b/c", "1")
			k.put("a/b", "2")
			k.put("a", "3")
			k.put("x", "4")
			k.put("x/y", "5")
			k.noErr(k.b.Delete(k.Context(), "a/b"))
			k.holds("a", "3")
			k.holds("a/b/c", "1")
			k.holds("x/y", "5")
			k.absent("a/b")
		}},
		{"what is only the start of a name is not found", func(k *kit) {
			k.put("a/b/c", "1")
			k.absent("a")
			k.absent("a/b")
		}},
		{"illegal names are refused", func(k *kit) {
			for _, n := range badNames() {
				_, err := k.b.Get(k.Context(), n, 0, -1)
				for _, err := range []error{k.tryPut(n, "x"), err, k.b.Delete(k.Context(), n)} {
					k.wants(err, bucket.ClassInvalid, base.ErrInvalid)
				}
			}
			if got := k.list("", "", bucket.MaxList); len(got) != 0 {
				k.Fatalf("listed %q", got)
			}
		}},
		{"illegal bytes are refused by list", func(k *kit) {
			for _, n := range []string{"A", "a b", "a\x00", "a=", strings.Repeat("f", bucket.MaxNameBytes+1)} {
				_, err := k.b.List(k.Context(), n, "", 1)
				k.wants(err, bucket.ClassInvalid, base.ErrInvalid)
				_, err = k.b.List(k.Context(), "", n, 1)
				k.wants(err, bucket.ClassInvalid, base.ErrInvalid)
			}
		}},
		{"string has no secret and is the same always", func(k *kit) {
			if s := k.b.String(); s == "" || s != k.b.String() || strings.ContainsAny(s, "@?") {
				k.Fatalf("bucket is called %q", s)
			}
		}},
	}
}

var contextChecks = []check{
	{"ended before put", func(k *kit) {
		k.wants(k.b.PutIfAbsent(ended(), "a", 1, strings.NewReader("x")), bucket.ClassCanceled, context.Canceled)
		k.absent("a")
	}},
	{"ended before get", func(k *kit) {
		k.put("a", "x")
		_, err := k.b.Get(ended(), "a", 0, -1)
		k.wants(err, bucket.ClassCanceled, context.Canceled)
	}},
	{"ended before list", func(k *kit) {
		_, err := k.b.List(ended(), "", "", 1)
		k.wants(err, bucket.ClassCanceled, context.Canceled)
	}},
	{"ended before delete", func(k *kit) {
		k.put("a", "x")
		k.wants(k.b.Delete(ended(), "a"), bucket.ClassCanceled, context.Canceled)
		k.holds("a", "x")
	}},
	{"the cause is told", func(k *kit) {
		ctx, cancel := context.WithCancelCause(k.Context())
		cancel(errContent)
		_, err := k.b.Get(ctx, "a", 0, -1)
		k.wants(err, bucket.ClassCanceled, errContent)
	}},
	{"ends within the content of a put", func(k *kit) {
		ctx, cancel := context.WithCancel(k.Context())
		content := io.MultiReader(bytes.NewReader(make([]byte, 100_000)), cancelReader(cancel), bytes.NewReader(make([]byte, 100_000)))
		k.wants(k.b.PutIfAbsent(ctx, "a", 200_000, content), bucket.ClassCanceled, context.Canceled)
		k.absent("a")
		k.put("a", "free still")
	}},
	{"ends within the body of a get", func(k *kit) {
		k.put("a", noise(8<<20))
		ctx, cancel := context.WithCancel(k.Context())
		o, err := k.b.Get(ctx, "a", 0, -1)
		k.noErr(err)
		defer o.Body.Close()
		if _, err := io.CopyN(io.Discard, o.Body, 10); err != nil {
			k.Fatal(err)
		}
		cancel()
		if n, err := io.Copy(io.Discard, o.Body); err == nil {
			k.Fatalf("read %d bytes more and no error", n)
		} else if !errors.Is(err, context.Canceled) {
			k.Fatalf("got %v", err)
		}
	}},
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

type cancelReader context.CancelFunc

func (c cancelReader) Read([]byte) (int, error) {
	c()
	return 0, io.EOF
}

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%04d", prefix, i))
	}
	return names
}
