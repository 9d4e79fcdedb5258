package hostile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/clock"
)

// maxHeapBytes is how much memory a device may take for what a hostile bucket sends, above what it
// takes anyway: an entry or an epoch of 21 MiB, and those that were read before it and not
// collected.
const maxHeapBytes = 96 << 20

// endless is a body that does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (endless) Close() error { return nil }

// stalled is a body that gives one byte and then nothing until its context ends.
type stalled struct {
	ctx  context.Context
	once *sync.Once
}

func (s stalled) Read(p []byte) (n int, err error) {
	s.once.Do(func() { n = copy(p, "x") })
	if n > 0 {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

func (stalled) Close() error { return nil }

// answers returns lies about the bodies of the objects that match; change gets what the honest
// bucket says.
func answers(match func(name string) bool, change func(ctx context.Context, o bucket.Object, name string, off, n int64) (bucket.Object, error)) lies {
	return lies{get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
		o, err := b.Get(ctx, name, off, n)
		if err != nil || !match(name) {
			return o, err
		}
		return change(ctx, o, name, off, n)
	}}
}

// below matches the objects of the target.
func (s *scene) below(name string) bool { return strings.HasPrefix(name, s.target.Dir+"/") }

func swapBody(o bucket.Object, body io.ReadCloser) bucket.Object {
	_ = o.Body.Close() // nothing of it is used
	o.Body = body
	return o
}

// onlyRanges is a lie that who reads objects whole does not meet.
const onlyRanges = "nonsense for any range"

// behindGood is a lie that who reads many entries at once meets.
const behindGood = "endless bodies behind good entries"

// bodies are lies about bodies.
var bodies = map[string]func(ctx context.Context, o bucket.Object, name string, off, n int64) (bucket.Object, error){
	"endless body": func(_ context.Context, o bucket.Object, _ string, _, _ int64) (bucket.Object, error) {
		return swapBody(o, endless{}), nil
	},
	"endless body of a size beyond everything": func(_ context.Context, o bucket.Object, _ string, _, _ int64) (bucket.Object, error) {
		o = swapBody(o, endless{})
		o.Size = 1<<63 - 1
		return o, nil
	},
	"endless body of the greatest size": func(_ context.Context, o bucket.Object, _ string, _, _ int64) (bucket.Object, error) {
		o = swapBody(o, endless{})
		o.Size = wire.MaxEntryBytes
		return o, nil
	},
	behindGood: func(_ context.Context, o bucket.Object, name string, _, _ int64) (bucket.Object, error) {
		if !strings.Contains(name, "/log/") || name[len(name)-2:] < "19" {
			return o, nil
		}
		o = swapBody(o, endless{})
		o.Size = wire.MaxEntryBytes
		return o, nil
	},
	"negative size": func(_ context.Context, o bucket.Object, _ string, _, _ int64) (bucket.Object, error) {
		o.Size = -1
		return o, nil
	},
	"size of one byte less": func(_ context.Context, o bucket.Object, _ string, _, _ int64) (bucket.Object, error) {
		o.Size--
		return o, nil
	},
	"wrong range": func(_ context.Context, o bucket.Object, _ string, off, _ int64) (bucket.Object, error) {
		b, err := io.ReadAll(o.Body)
		if err != nil {
			return o, err
		}
		return swapBody(o, io.NopCloser(bytes.NewReader(append(b[len(b)/2:], b[:len(b)/2]...)))), nil
	},
	onlyRanges: func(_ context.Context, o bucket.Object, _ string, off, n int64) (bucket.Object, error) {
		if off > 0 || n > 0 {
			return swapBody(o, endless{}), nil
		}
		return o, nil
	},
	"HTML": func(_ context.Context, o bucket.Object, _ string, _, _ int64) (bucket.Object, error) {
		page := []byte("<html><body>please log in</body></html>")
		o = swapBody(o, io.NopCloser(bytes.NewReader(page)))
		o.Size = int64(len(page))
		return o, nil
	},
}

// TestLyingBodies lies about the bodies of all objects of a page. A device says that something is
// corrupt, other pages go on, and memory is bounded.
func TestLyingBodies(t *testing.T) {
	for name, change := range bodies {
		t.Run(name, func(t *testing.T) {
			for _, s := range allScenes(t) {
				if (s.name == "diffs" || s.name == "bodies") && !everything() {
					continue
				}
				a := &attack{s: s, state: s.end, lies: answers(s.below, change)}
				peak := heapPeak(t, func() {
					found, said := a.strike(t, 0)
					if name == onlyRanges && s.name != "packs" || name == behindGood && s.name != "entries" {
						return // nothing else is read in parts, and no other log is that long
					}
					if !found || !strings.Contains(said, s.target.Dir) && !strings.Contains(said, "corrupt") {
						t.Errorf("%s: %s", s.name, said)
					}
				})
				if peak > maxHeapBytes {
					t.Errorf("%s: %d MiB of heap", s.name, peak>>20)
				}
			}
		})
	}
}

// TestLyingBodiesBesideThePages lies about the bodies of rings and of an announcement, of which
// none is read in parts.
func TestLyingBodiesBesideThePages(t *testing.T) {
	all := allScenes(t)
	s := all[len(all)-1]
	if s.name != "rings" {
		t.Fatalf("the last scene is %q", s.name)
	}
	for _, kind := range []string{kindKeys, kindRing, kindAnnouncement} {
		object := s.byKind()[kind][0]
		for name, change := range bodies {
			if name == onlyRanges || name == behindGood {
				continue
			}
			t.Run(kind+"/"+name, func(t *testing.T) {
				a := &attack{s: s, state: s.end, object: object, lies: answers(func(name string) bool { return name == object }, change)}
				peak := heapPeak(t, func() {
					if found, said := a.strike(t, 0); !found {
						t.Error(said)
					}
				})
				if peak > maxHeapBytes {
					t.Errorf("%d MiB of heap", peak>>20)
				}
			})
		}
	}
}

// heapPeak returns by how many bytes the heap grows while fn runs, at the most.
func heapPeak(t testing.TB, fn func()) int64 {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // what counts is what is held, not what waits for a collection
	runtime.GC()
	heap := func() int64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	base := heap()
	done, ended := make(chan struct{}), make(chan int64)
	go func() {
		peak := int64(0)
		for {
			tick, release := clock.System.After(time.Millisecond)
			select {
			case <-tick:
				peak = max(peak, heap()-base)
			case <-done:
				release()
				ended <- peak
				return
			}
		}
	}()
	fn()
	close(done)
	return <-ended
}

// TestStalledBodies has the bodies of a page give one byte and no more: whoever waits gives up with
// his context, and other pages have come.
func TestStalledBodies(t *testing.T) {
	s := allScenes(t)[0]
	o := newOwner(s.mid)
	r, err := s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	stands := make(chan struct{})
	var once sync.Once
	o.show(s.end, answers(s.below, func(ctx context.Context, o bucket.Object, _ string, _, _ int64) (bucket.Object, error) {
		once.Do(func() { close(stands) })
		return swapBody(o, stalled{ctx, new(sync.Once)}), nil
	}))
	p := openPage(t, r, targetLedger, otherName)
	limit, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ctx, leave := context.WithCancel(limit)
	synced := make(chan error, 1)
	go func() {
		_, err := r.Sync(ctx)
		synced <- err
	}()
	<-stands
	want := s.heads[targetLedger+"/"+otherName]
	for got, err := headsOf(ctx, p); !slices.Equal(got, want); got, err = headsOf(ctx, p) {
		if err != nil {
			t.Fatalf("another page has not come: it has the heads %v, %v", got, err)
		}
		tick, release := clock.System.After(time.Millisecond)
		<-tick
		release()
	}
	leave()
	if err := <-synced; !errors.Is(err, context.Canceled) {
		t.Errorf("sync: %v", err)
	}
	put(t, r, "written", "meanwhile")
	o.show(s.end, lies{})
	if _, err := r.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	if got := read(t, r, "written"); got != "meanwhile" {
		t.Errorf("what was written is %q", got)
	}
	closeIt(t, r)
}

// TestLyingLists lies about which objects there are.
func TestLyingLists(t *testing.T) {
	const noEnd = "no end"
	type list = func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error)
	invented := func(names ...string) list {
		return func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error) {
			infos, err := b.List(ctx, after, prefix, limit)
			for _, n := range names {
				if n = prefix + n; n > after {
					infos = append(infos, bucket.Info{Name: n, Size: 5})
				}
			}
			slices.SortFunc(infos, func(a, b bucket.Info) int { return strings.Compare(a.Name, b.Name) })
			return infos, err
		}
	}
	for name, lie := range map[string]list{
		"nothing": func(context.Context, bucket.Bucket, string, string, int) ([]bucket.Info, error) { return nil, nil },
		"the same again and again": func(ctx context.Context, b bucket.Bucket, _, prefix string, limit int) ([]bucket.Info, error) {
			infos, err := b.List(ctx, "", prefix, limit)
			for len(infos) > 0 && len(infos) < limit {
				infos = append(infos, infos[0])
			}
			return infos, err
		},
		"backwards": func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error) {
			infos, err := b.List(ctx, after, prefix, limit)
			slices.Reverse(infos)
			return infos, err
		},
		"other names": func(ctx context.Context, b bucket.Bucket, after, _ string, limit int) ([]bucket.Info, error) {
			return b.List(ctx, after, "", limit)
		},
		noEnd: func(_ context.Context, _ bucket.Bucket, after, prefix string, limit int) (infos []bucket.Info, _ error) {
			n := 0
			_, _ = fmt.Sscanf(strings.TrimPrefix(after, prefix), "%d", &n) // 0 at the beginning
			for range limit {
				n++
				infos = append(infos, bucket.Info{Name: prefix + fmt.Sprintf("%020d", n), Size: 100})
			}
			return infos, nil
		},
		"names of nothing": invented("a", "a/b/c", "a.b", "-", "_", "...", strings.Repeat("x", 900), "con", "00000000000000000001-00000000000000000002", "0", "-1"),
		"names of what is not there": invented("0123456789012345678901234567890123456789", "00000000000000000099", "99999999999999999999",
			"ffffffffffffffffffffffffffffffffffffffff"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range allScenes(t) {
				if !everything() && (s.name == "diffs" || s.name == "bodies" || s.name == "packs" || s.name != "entries" && name == noEnd) {
					continue
				}
				// Lists are for what a device does not know yet: an old device that needs none may
				// be right with any of them.
				a := &attack{s: s, state: s.end, lies: lies{list: lie}, withheld: true}
				strike := func() {
					if fresh, old := a.newDevice(t), a.oldDevice(t); t.Failed() {
						t.Fatalf("%s: new device: %v; old device: %v", s.name, fresh, old)
					}
				}
				if name != noEnd {
					strike()
				} else if peak := heapPeak(t, strike); peak > maxHeapBytes {
					t.Errorf("%s: %d MiB of heap", s.name, peak>>20)
				}
			}
		})
	}
}

// noTime is a lie without which no device can tell what is fresh.
const noTime = "no time"

// TestLyingClocks shifts all times that a bucket tells, by years and to nonsense. Nothing but
// states and ages comes from them. A bucket that tells no time at all is no bucket for Ledger: a
// device cannot know whether an entry came to the name of one that was deleted, and says so.
func TestLyingClocks(t *testing.T) {
	year := 365 * 24 * time.Hour
	for name, shift := range map[string]func(time.Time) time.Time{
		"years ahead":  func(at time.Time) time.Time { return at.Add(20 * year) },
		"years behind": func(at time.Time) time.Time { return at.Add(-20 * year) },
		noTime:         func(time.Time) time.Time { return time.Time{} },
		"year 9999":    func(time.Time) time.Time { return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) },
		"year 1":       func(time.Time) time.Time { return time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC) },
		"year -200":    func(time.Time) time.Time { return time.Date(-200, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range allScenes(t) {
				if !everything() && (s.name == "diffs" || s.name == "bodies" || s.name == "packs") {
					continue
				}
				l := lies{
					get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
						o, err := b.Get(ctx, name, off, n)
						o.Created, o.ServerTime = shift(o.Created), shift(o.ServerTime)
						return o, err
					},
					list: func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error) {
						infos, err := b.List(ctx, after, prefix, limit)
						for i := range infos {
							infos[i].Created = shift(infos[i].Created)
						}
						return infos, err
					},
				}
				a := &attack{s: s, state: s.end, lies: l}
				fresh, old := a.newDevice(t), a.oldDevice(t)
				if name == noTime && (!errors.Is(fresh, ledger.ErrUnsupported) || !errors.Is(old, ledger.ErrUnsupported)) || name != noTime && (fresh != nil || old != nil) {
					t.Errorf("%s: new device: %v; old device: %v", s.name, fresh, old)
				}
				writeUnder(t, s, l, name == noTime)
			}
		})
	}
}

// writeUnder has a device write while the bucket lies, and another read it when it does not. unfit
// says that the bucket lies so that nothing can be sent.
func writeUnder(t *testing.T, s *scene, l lies, unfit bool) {
	t.Helper()
	o := newOwner(s.end)
	r, err := s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	o.show(o.b.State(), l)
	put(t, r, "written", "under lies")
	if _, err := r.Sync(t.Context()); (err != nil) != unfit || unfit && !errors.Is(err, ledger.ErrUnsupported) {
		t.Errorf("%s: send: %v", s.name, err)
	}
	o.show(o.b.State(), lies{})
	if _, err := r.Sync(t.Context()); err != nil {
		t.Errorf("%s: send: %v", s.name, err)
	}
	fresh, err := s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, fresh)
	if got := read(t, fresh, "written"); got != "under lies" {
		t.Errorf("%s: what was written has come as %q", s.name, got)
	}
}

// TestSuccessThenAbsent has the bucket say that it stored entries which it did not. The device
// notices that the bucket lacks what it has sent when it audits the log, with its next session. It
// keeps all, and makes the bucket whole again with an epoch of what it has.
func TestSuccessThenAbsent(t *testing.T) {
	s := allScenes(t)[0]
	o := newOwner(s.end)
	r, err := s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	o.show(s.end, swallow("/log/", nil))
	long := string(noise(77, 1100<<10))
	put(t, r, "long", long)
	_, first := r.Sync(t.Context())
	o.show(o.b.State(), lies{})
	put(t, r, "after", "x")
	_, second := r.Sync(t.Context())
	if first != nil || second != nil || !strings.Contains(o.mended(), s.target.Dir+"/log/") {
		t.Errorf("sync: %v; later: %v; %q", first, second, o.mended())
	}
	a := attack{s: s}
	a.wantFresh(t, o, map[string]string{"long": long, "after": "x"})
	if read(t, r, "long") != long || read(t, r, "after") != "x" {
		t.Error("what was written is not here any more")
	}
	if done, err := admin.Reupload(t.Context(), r); err != nil {
		t.Fatalf("upload anew of %d pages: %v", len(done), err)
	}
	a.wantFresh(t, o, map[string]string{"long": long, "after": "x"})
}

// TestPackThenAbsent has the bucket say that it stored a pack which it shows later only. Nobody
// takes the entry without it: a new device says which pack that is, and begins an epoch with what
// stands before. Nothing is lost, and all is well when the pack is there or its writer comes.
func TestPackThenAbsent(t *testing.T) {
	s := allScenes(t)[0]
	o := newOwner(s.end)
	r, err := s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	kept := map[string][]byte{}
	o.show(s.end, swallow("/packs/", kept))
	long := string(noise(77, 1100<<10))
	put(t, r, "long", long)
	if _, err := r.Sync(t.Context()); err != nil || len(kept) == 0 {
		t.Fatalf("sync: %v; %d packs", err, len(kept))
	}
	o.show(o.b.State(), lies{})
	then := o.b.State()
	fresh, err := s.clone(t.Context(), o)
	told := o.mended() + fmt.Sprint(err)
	for name := range kept {
		if !strings.Contains(told, name) {
			t.Errorf("a new device does not name %s: %s", name, told)
		}
	}
	if read(t, fresh, "long") != "" || read(t, r, "long") != long {
		t.Error("a value is where it cannot be, or not where it was written")
	}
	a := attack{s: s}
	if _, err := r.Sync(t.Context()); err != nil { // which sends it again
		t.Error(err)
	}
	if _, err := fresh.Sync(t.Context()); err != nil || read(t, fresh, "long") != long {
		t.Errorf("what its writer has sent again has not come: %v", err)
	}
	closeIt(t, fresh)
	a.wantFresh(t, o, map[string]string{"long": long})
	o.show(then, lies{})
	for name, content := range kept {
		o.b.Replace(name, content)
	}
	a.wantFresh(t, o, map[string]string{"long": long})
}

// swallow stores nothing below a part of names, but in kept if that is not nil, and says that it
// has.
func swallow(part string, kept map[string][]byte) lies {
	return lies{put: func(ctx context.Context, b bucket.Bucket, name string, size int64, content io.Reader) error {
		if !strings.Contains(name, part) {
			return b.PutIfAbsent(ctx, name, size, content)
		}
		stored, err := io.ReadAll(content)
		if kept != nil {
			kept[name] = stored
		}
		bucket.ReportCreated(ctx, clock.System.Now())
		return err
	}}
}

// wantFresh wants values on a new device.
func (a *attack) wantFresh(t *testing.T, o *owner, values map[string]string) {
	t.Helper()
	fresh, err := a.s.clone(t.Context(), o)
	if err != nil {
		t.Fatalf("clone: %v", err)
	}
	defer closeIt(t, fresh)
	for k, want := range values {
		if read(t, fresh, k) != want {
			t.Errorf("%s has not come as it was written", k)
		}
	}
}

// TestOnlyWritesRefused refuses every write: what others have written comes all the same, and what
// is here goes up when it may.
func TestOnlyWritesRefused(t *testing.T) {
	s := allScenes(t)[0]
	o := newOwner(s.mid)
	r, err := s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	put(t, r, "mine", "1")
	o.show(s.end, lies{put: func(_ context.Context, _ bucket.Bucket, name string, _ int64, _ io.Reader) error {
		return &bucket.Error{Op: bucket.OpPut, Name: name, Class: bucket.ClassDenied, Status: 403}
	}})
	_, err = r.Sync(t.Context())
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("sync: %v", err)
	}
	p := openPage(t, r, targetLedger, targetName)
	heads, err := headsOf(t.Context(), p)
	if err != nil || len(heads) != 2 || !slices.Contains(heads, s.heads[targetLedger+"/"+targetName][0]) {
		t.Errorf("heads %v, %v: what others have written is not here", heads, err)
	}
	_ = p.Close() // it was only read
	o.show(s.end, lies{})
	if _, err := r.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}
