package buckettest

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/iotest"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

var putChecks = []check{
	{"stores", func(k *kit) {
		k.put("a/b", "content")
		k.holds("a/b", "content")
	}},
	{"stores nothing of no bytes", func(k *kit) {
		k.put("empty", "")
		k.holds("empty", "")
		k.wants(k.tryPut("empty", "x"), bucket.ClassExists, bucket.ErrExists)
	}},
	{"stores every byte value", func(k *kit) {
		var all strings.Builder
		for i := range 1 << 16 {
			all.WriteByte(byte(i))
			all.WriteByte(byte(i >> 8))
		}
		k.put("bytes", all.String())
		k.holds("bytes", all.String())
	}},
	{"refuses an existing name", func(k *kit) {
		k.put("a", "first")
		err := k.tryPut("a", "second")
		k.wants(err, bucket.ClassExists, bucket.ErrExists)
		k.wants(err, bucket.ClassExists, base.ErrConflict)
		if bucket.Ambiguous(err) {
			k.Fatal("a plain refusal is called ambiguous")
		}
		k.holds("a", "first")
	}},
	{"refuses the same content too", func(k *kit) {
		k.put("a", "first")
		k.wants(k.tryPut("a", "first"), bucket.ClassExists, bucket.ErrExists)
	}},
	{"refuses ten times", func(k *kit) {
		k.put("a", "first")
		for i := range 10 {
			k.wants(k.tryPut("a", fmt.Sprint(i)), bucket.ClassExists, bucket.ErrExists)
		}
		k.holds("a", "first")
	}},
	{"refuses an existing name for large content", func(k *kit) {
		k.put("a", "first")
		if err := k.tryPut("a", noise(3<<20)); !k.o.Hasty || bucket.ClassOf(err) != bucket.ClassRetryable || !bucket.Ambiguous(err) {
			k.wants(err, bucket.ClassExists, bucket.ErrExists)
		}
		k.holds("a", "first")
	}},
	{"takes a deleted name", func(k *kit) {
		k.put("a", "first")
		k.noErr(k.b.Delete(k.Context(), "a"))
		k.put("a", "second")
		k.holds("a", "second")
	}},
	{"tells the creation time", func(k *kit) {
		var created time.Time
		k.noErr(k.b.PutIfAbsent(bucket.WithCreated(k.Context(), &created), "a", 1, strings.NewReader("x")))
		_, o, err := k.read("a", 0, -1)
		k.noErr(err)
		if created.IsZero() || created.Sub(o.Created).Abs() > 2*time.Second {
			k.Fatalf("put says created %s, get says %s", created, o.Created)
		}
	}},
	{"takes content that comes byte by byte", func(k *kit) {
		content := noise(5000)
		k.noErr(k.b.PutIfAbsent(k.Context(), "a", 5000, &dribble{r: strings.NewReader(content)}))
		k.holds("a", content)
	}},
	{"starts where the content stands", func(k *kit) {
		r := strings.NewReader("skipped content")
		if _, err := r.Seek(8, io.SeekStart); err != nil {
			k.Fatal(err)
		}
		k.noErr(k.b.PutIfAbsent(k.Context(), "a", 7, r))
		k.holds("a", "content")
	}},
	{"refuses a negative size", func(k *kit) {
		k.wants(k.b.PutIfAbsent(k.Context(), "a", -1, strings.NewReader("")), bucket.ClassInvalid, base.ErrInvalid)
	}},
}

// badContentChecks put content of another length than announced, or content that breaks.
func badContentChecks() (checks []check) {
	for _, c := range []struct {
		what    string
		size    int64
		content string
		breaks  bool
	}{
		{"is too short", 10, "short", false},
		{"is empty and should not be", 1, "", false},
		{"is too long", 3, "long", false},
		{"should be empty and is not", 0, "x", false},
		{"breaks at once", 10, "", true},
		{"breaks later", 1 << 20, noise(300_000), true},
		{"breaks after the last byte", 1000, noise(1000), true},
	} {
		checks = append(checks, check{"stores nothing when the content " + c.what, func(k *kit) {
			content, class, want := io.Reader(strings.NewReader(c.content)), bucket.ClassInvalid, base.ErrInvalid
			if c.breaks {
				content, class, want = io.MultiReader(content, iotest.ErrReader(errContent)), bucket.ClassOther, errContent
			}
			k.wants(k.b.PutIfAbsent(k.Context(), "a", c.size, content), class, want)
			k.absent("a")
			k.put("a", "free still")
		}})
	}
	return checks
}

// ranged is the content whose ranges are read.
const ranged = "0123456789"

var getChecks = []check{
	{"an absent name", func(k *kit) {
		for _, r := range [][2]int64{{0, -1}, {5, 5}, {0, 0}} {
			_, _, err := k.read("a", r[0], r[1])
			k.wants(err, bucket.ClassNotFound, base.ErrNotFound)
		}
	}},
	{"all", func(k *kit) {
		k.put("a", ranged)
		k.holds("a", ranged)
	}},
	{"ranges at all edges", func(k *kit) {
		k.put("a", ranged)
		for off := range len(ranged) {
			for n := 0; n <= len(ranged)+2; n++ {
				k.gives("a", int64(off), int64(n), ranged[off:min(off+n, len(ranged))], int64(len(ranged)))
			}
			k.gives("a", int64(off), -1, ranged[off:], int64(len(ranged)))
		}
	}},
	{"a very long range ends with the object", func(k *kit) {
		k.put("a", ranged)
		k.gives("a", 3, 1<<62, ranged[3:], 10)
	}},
	{"a range that starts at the end", func(k *kit) {
		k.put("a", ranged)
		for _, n := range []int64{-1, 0, 1, 100} {
			_, _, err := k.read("a", 10, n)
			k.wants(err, bucket.ClassInvalid, bucket.ErrRange)
		}
	}},
	{"a range that starts beyond the end", func(k *kit) {
		k.put("a", ranged)
		for _, n := range []int64{-1, 0, 1, 100} {
			_, _, err := k.read("a", 1<<40, n)
			k.wants(err, bucket.ClassInvalid, bucket.ErrRange)
		}
	}},
	{"a range of an empty object", func(k *kit) {
		k.put("a", "")
		for _, n := range []int64{-1, 0, 1} {
			k.gives("a", 0, n, "", 0)
		}
		_, _, err := k.read("a", 1, 1)
		k.wants(err, bucket.ClassInvalid, bucket.ErrRange)
	}},
	{"a negative offset", func(k *kit) {
		k.put("a", ranged)
		_, _, err := k.read("a", -1, 1)
		k.wants(err, bucket.ClassInvalid, base.ErrInvalid)
	}},
	{"ranges of a large object", func(k *kit) {
		content := noise(2_000_003)
		k.put("a", content)
		for _, r := range [][2]int64{{0, 1}, {65_535, 2}, {1 << 20, 1 << 19}, {2_000_002, 1}, {1_999_000, 9999}, {7, 1_999_990}} {
			k.gives("a", r[0], r[1], content[r[0]:min(r[0]+r[1], 2_000_003)], 2_000_003)
		}
	}},
	{"times", func(k *kit) {
		k.put("a", "x")
		_, first, err := k.read("a", 0, -1)
		k.noErr(err)
		_, again, err := k.read("a", 0, 0)
		k.noErr(err)
		infos, err := k.b.List(k.Context(), "", "", 1)
		k.noErr(err)
		switch {
		case first.Created.IsZero() || !again.Created.Equal(first.Created):
			k.Fatalf("created %s, then %s", first.Created, again.Created)
		case infos[0].Created.Sub(first.Created).Abs() > 2*time.Second:
			k.Fatalf("created %s, listed %s", first.Created, infos[0].Created)
		case !first.ServerTime.IsZero() && first.ServerTime.Sub(first.Created).Abs() > time.Minute:
			k.Fatalf("created %s at %s", first.Created, first.ServerTime)
		}
	}},
	{"close without reading", func(k *kit) {
		k.put("a", noise(4<<20))
		for range 10 {
			o, err := k.b.Get(k.Context(), "a", 0, -1)
			k.noErr(err)
			k.noErr(o.Body.Close())
		}
		k.gives("a", 0, 0, "", 4<<20)
	}},
	{"goes on when the object is deleted, or says so", func(k *kit) {
		content := noise(100_000)
		k.put("a", content)
		o, err := k.b.Get(k.Context(), "a", 0, -1)
		k.noErr(err)
		defer o.Body.Close()
		k.noErr(k.b.Delete(k.Context(), "a"))
		if got, err := io.ReadAll(o.Body); err == nil && string(got) != content {
			k.Fatalf("%d of %d bytes, and no error", len(got), len(content))
		}
	}},
}

var deleteChecks = []check{
	{"deletes", func(k *kit) {
		k.put("a/b", "x")
		k.noErr(k.b.Delete(k.Context(), "a/b"))
		k.absent("a/b")
	}},
	{"an absent name", func(k *kit) {
		k.noErr(k.b.Delete(k.Context(), "a"))
		k.noErr(k.b.Delete(k.Context(), "a/b/c"))
	}},
	{"twice", func(k *kit) {
		k.put("a", "x")
		k.noErr(k.b.Delete(k.Context(), "a"))
		k.noErr(k.b.Delete(k.Context(), "a"))
	}},
	{"only the name itself", func(k *kit) {
		names, gone := []string{"a", "a/b", "a/b/c", "a/bc", "ab"}, "a/b"
		if k.o.Paths {
			names, gone = []string{"a/b/c", "a/b/cd", "a/bc", "ab"}, "a/b/c"
		}
		for _, n := range names {
			k.put(n, n)
		}
		k.noErr(k.b.Delete(k.Context(), gone))
		want := slices.DeleteFunc(names, func(n string) bool { return n == gone })
		if got := k.list("", "", 10); !slices.Equal(got, want) {
			k.Fatalf("left %q", got)
		}
	}},
	{"the start of a name", func(k *kit) {
		k.put("a/b/c", "x")
		k.noErr(k.b.Delete(k.Context(), "a/b"))
		k.noErr(k.b.Delete(k.Context(), "a"))
		k.holds("a/b/c", "x")
	}},
}

func listChecks() []check {
	checks := []check{
		{"of nothing", func(k *kit) {
			if got := k.list("", "", 10); len(got) != 0 {
				k.Fatalf("listed %q", got)
			}
		}},
		{"of what was put just now", func(k *kit) {
			for i, n := range numbered("n/", 30) {
				k.put(n, n)
				if got := k.list("", "n/", bucket.MaxList); len(got) != i+1 {
					k.Fatalf("listed %d of %d", len(got), i+1)
				}
			}
		}},
		{"sizes", func(k *kit) {
			k.put("a", "12345")
			k.put("b", "")
			infos, err := k.b.List(k.Context(), "", "", 10)
			k.noErr(err)
			if len(infos) != 2 || infos[0].Size != 5 || infos[1].Size != 0 {
				k.Fatalf("listed %+v", infos)
			}
		}},
		{"more than one page of the store", func(k *kit) {
			names := numbered("m/", 1207)
			together(17, func(part int) { // 1207 is 17 * 71
				for i := part * 71; i < (part+1)*71; i++ {
					if err := k.tryPut(names[(i*500)%len(names)], "x"); err != nil { // 500 and 1207 have no common divisor
						k.Error(err)
					}
				}
			})
			got := k.list("", "", bucket.MaxList)
			if len(got) != bucket.MaxList {
				k.Fatalf("listed %d, limit %d", len(got), bucket.MaxList)
			}
			got = append(got, k.list(got[len(got)-1], "", bucket.MaxList)...)
			if !slices.Equal(got, names) {
				k.Fatalf("two lists give %d names, want %d", len(got), len(names))
			}
			var paged []string
			for after := ""; ; {
				page := k.list(after, "m/", 100)
				if paged = append(paged, page...); len(page) < 100 {
					break
				}
				after = page[len(page)-1]
			}
			if !slices.Equal(paged, names) {
				k.Fatalf("pages give %d names, want %d", len(paged), len(names))
			}
		}},
	}
	for _, limit := range []int{0, -1, bucket.MaxList + 1} {
		checks = append(checks, check{fmt.Sprintf("limit %d is refused", limit), func(k *kit) {
			_, err := k.b.List(k.Context(), "", "", limit)
			k.wants(err, bucket.ClassInvalid, base.ErrInvalid)
		}})
	}
	return append(checks, check{"every after, prefix and limit", func(k *kit) {
		names := []string{"a", "a-", "a-/b", "a.", "a.b", "a/b", "a/b-c", "a/b/c", "a/b/d", "a/c", "a0", "a_", "aa", "aa/a", "b", "c/c/c", "c/c0"}
		queries := append([]string{"", "a/", "a/b/", "a/bb", "a1", "c/", "c/c/", "z", "-", "a/b/c/d", "0", "_", "/", "a//", "c/c/c/"}, names...)
		names = k.o.possible(names)
		for i := range names {
			k.put(names[len(names)-1-i], "x")
		}
		for _, prefix := range queries {
			for _, after := range queries {
				var want []string
				for _, n := range names {
					if n > after && strings.HasPrefix(n, prefix) {
						want = append(want, n)
					}
				}
				for _, limit := range []int{1, 3, 100} {
					if got := k.list(after, prefix, limit); !slices.Equal(got, want[:min(limit, len(want))]) {
						k.Fatalf("after %q with prefix %q, at most %d: %q of %q", after, prefix, limit, got, want)
					}
				}
			}
		}
	}})
}

var concurrentChecks = []check{
	{"of 64 who put one name, one wins", func(k *kit) {
		for round := range 4 {
			name := fmt.Sprintf("race/%d", round)
			content := func(i int) string { return strings.Repeat(fmt.Sprintf("racer %02d ", i), 1000) }
			var won, lost atomic.Int64
			var winner atomic.Int64
			meet := &meeting{left: 64, all: make(chan struct{})}
			together(64, func(i int) {
				r := &racer{Reader: strings.NewReader(content(i)), meet: meet}
				err := k.b.PutIfAbsent(k.Context(), name, r.Size(), r)
				r.arrive()
				switch {
				case err == nil:
					won.Add(1)
					winner.Store(int64(i))
				case bucket.ClassOf(err) == bucket.ClassExists, bucket.ClassOf(err) == bucket.ClassBusy:
					lost.Add(1)
				default:
					k.Errorf("racer %d: %v", i, err)
				}
			})
			if won.Load() != 1 || lost.Load() != 63 {
				k.Fatalf("%d won, %d lost", won.Load(), lost.Load())
			}
			k.holds(name, content(int(winner.Load())))
		}
	}},
	{"different names do not meet", func(k *kit) {
		together(64, func(i int) {
			name := fmt.Sprintf("d/%d/x", i)
			if err := k.tryPut(name, name); err != nil {
				k.Error(err)
			} else if got, _, err := k.read(name, 0, -1); got != name || err != nil {
				k.Errorf("%s: %q, %v", name, got, err)
			}
		})
		if got := k.list("", "d/", 100); len(got) != 64 {
			k.Fatalf("listed %d of 64", len(got))
		}
	}},
	{"a reader sees all or nothing", func(k *kit) {
		content := noise(1 << 20)
		var done atomic.Bool
		together(4, func(i int) {
			if i == 0 {
				defer done.Store(true)
				if err := k.tryPut("a", content); err != nil {
					k.Error(err)
				}
				return
			}
			for last := false; !last; {
				last = done.Load()
				switch got, _, err := k.read("a", 0, -1); {
				case err == nil && got != content:
					k.Errorf("a reader got %d of %d bytes", len(got), len(content))
				case err != nil && (last || bucket.ClassOf(err) != bucket.ClassNotFound):
					k.Error(err)
				}
			}
		})
	}},
	{"puts and deletes in one folder", func(k *kit) {
		// Where names are paths, a folder that vanishes while a file appears or vanishes is an
		// error of the store.
		folderGone := func(err error) bool {
			return k.o.Paths && bucket.ClassOf(err) == bucket.ClassRetryable && bucket.Ambiguous(err)
		}
		together(8, func(i int) {
			for round := range 20 {
				name := fmt.Sprintf("f/%d/x", round%2)
				if i%2 == 0 {
					name = fmt.Sprintf("f/%d/y%d", round%2, i)
				}
				err := k.tryPut(name, "x")
				if class := bucket.ClassOf(err); err != nil && class != bucket.ClassExists && class != bucket.ClassBusy && !folderGone(err) {
					k.Errorf("put: %v", err)
				}
				if err := k.b.Delete(k.Context(), name); err != nil && !folderGone(err) {
					k.Errorf("delete: %v", err)
				}
			}
		})
		for _, name := range k.list("", "", 10) {
			if k.o.Paths { // a delete may have failed
				k.noErr(k.b.Delete(k.Context(), name))
			}
		}
		if got := k.list("", "", 10); len(got) != 0 {
			k.Fatalf("left %q", got)
		}
	}},
}

// meeting makes racers wait for each other, so that all have begun before one can end.
type meeting struct {
	mu   sync.Mutex
	left int // guarded by mu
	all  chan struct{}
}

// racer is a content that is not read before all racers have begun or were refused.
type racer struct {
	*strings.Reader
	meet *meeting
	once sync.Once
}

// Read implements io.Reader.
func (r *racer) Read(p []byte) (int, error) {
	r.arrive()
	<-r.meet.all
	return r.Reader.Read(p)
}

// WriteTo implements io.WriterTo.
func (r *racer) WriteTo(w io.Writer) (int64, error) {
	r.arrive()
	<-r.meet.all
	return r.Reader.WriteTo(w)
}

func (r *racer) arrive() {
	r.once.Do(func() {
		r.meet.mu.Lock()
		defer r.meet.mu.Unlock()
		if r.meet.left--; r.meet.left == 0 {
			close(r.meet.all)
		}
	})
}

func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

var largeChecks = []check{
	{"a large object is streamed both ways", func(k *kit) {
		k.noErr(k.b.PutIfAbsent(k.Context(), "warm", 1<<20, io.LimitReader(&pattern{}, 1<<20)))
		peak := newPeak()
		k.noErr(k.b.PutIfAbsent(k.Context(), "large", k.o.LargeBytes, io.LimitReader(&pattern{peak: peak}, k.o.LargeBytes)))
		o, err := k.b.Get(k.Context(), "large", 0, -1)
		k.noErr(err)
		defer o.Body.Close()
		if n, err := io.Copy(&pattern{peak: peak}, o.Body); err != nil || n != k.o.LargeBytes || o.Size != n {
			k.Fatalf("read %d of %d bytes: %v", n, o.Size, err)
		}
		if used := peak.most - min(peak.most, peak.start); used > k.o.MemoryBytes && !k.o.HoldsContent {
			k.Fatalf("took %d MiB of memory", used>>20)
		}
	}},
	{"a range of a large object", func(k *kit) {
		k.noErr(k.b.PutIfAbsent(k.Context(), "large", k.o.LargeBytes, io.LimitReader(&pattern{}, k.o.LargeBytes)))
		off := k.o.LargeBytes/2 + 17
		got, _, err := k.read("large", off, 100_000)
		k.noErr(err)
		want := make([]byte, 100_000)
		(&pattern{pos: off}).Read(want)
		if got != string(want) {
			k.Fatal("other bytes")
		}
	}},
}

// pattern gives or checks a sequence of bytes that has no period shorter than 16 MiB.
type pattern struct {
	pos  int64
	peak *peak
}

func patternAt(pos int64) byte { return byte(pos*7 ^ pos>>8*11 ^ pos>>16*13) }

// Read implements io.Reader; it never ends.
func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = patternAt(p.pos + int64(i))
	}
	p.advance(len(b))
	return len(b), nil
}

// Write implements io.Writer; it fails at a byte that Read would not give.
func (p *pattern) Write(b []byte) (int, error) {
	for i := range b {
		if b[i] != patternAt(p.pos+int64(i)) {
			return i, fmt.Errorf("%w: byte %d", base.ErrCorrupt, p.pos+int64(i))
		}
	}
	p.advance(len(b))
	return len(b), nil
}

func (p *pattern) advance(n int) {
	if before := p.pos; p.peak != nil && before>>22 != (before+int64(n))>>22 {
		p.peak.look()
	}
	p.pos += int64(n)
}

// peak watches the heap.
type peak struct{ start, most uint64 }

func newPeak() *peak {
	p := &peak{}
	p.look()
	p.start, p.most = p.most, 0
	return p
}

// look measures the live heap after a collection.
func (p *peak) look() {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p.most = max(p.most, m.HeapAlloc)
}
