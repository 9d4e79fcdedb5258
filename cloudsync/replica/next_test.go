package replica_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/object"
)

func TestTwoDevicesSync(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.mustSync()
	b.mustSync()
	a.commit(edit{"a": text("1"), "long": text(noise(1, 5000)), "longer": text(noise(2, 300_000)), "lazy": {noise(3, 400_000), true}})
	a.mustSync()
	b.mustSync()
	b.wantHead()
	big := edit{}
	for i := range 2000 {
		big[fmt.Sprintf("key %d", i)] = text(noise(uint64(i), 30))
	}
	b.commit(big) // its difference is an object of its own
	a.commit(edit{"a": nil, "b": text("2")})
	b.mustSync()
	a.mustSync()
	b.mustSync()
	if x, y := a.wantHead(), b.wantHead(); x.ID != y.ID {
		t.Fatalf("heads %s and %s", x.ID.Short(), y.ID.Short())
	}
	if out, err := a.page.Next(t.Context(), a.log.Append); out != nil || err != nil {
		t.Fatalf("there is more to send: %v, %v", out, err)
	}
}

// TestALongDifferenceIsUploadedOnce: a body that is made again after a failed append names the
// object of the first one.
func TestALongDifferenceIsUploadedOnce(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.mustSync()
	long := edit{}
	for i := range 2000 {
		long[fmt.Sprintf("key %d", i)] = text(noise(uint64(i), 100))
	}
	a.commit(long)
	packs := 0
	for range 2 {
		if body, err := a.page.Next(t.Context(), a.log.Append); body == nil || err != nil {
			t.Fatalf("no body: %v", err)
		}
		before := packs
		if packs, _ = w.objects(wire.KindPack); packs != 1 {
			t.Fatalf("%d objects, %d before", packs, before)
		}
	}
}

// TestManyPieces makes LAZY values EAGER: a reader lacks more values, and more pieces of a value,
// than it fetches at once.
func TestManyPieces(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	lazy, eager := edit{}, edit{}
	add := func(key, content string) {
		lazy[key], eager["eager "+key] = &val{content: content, lazy: true}, text(content)
	}
	for i := range 1500 {
		add(fmt.Sprint(i), noise(uint64(i), 300))
	}
	add("long", noise(7, 80<<20))
	for _, e := range []edit{lazy, eager} {
		a.commit(e)
		a.mustSync()
		b.mustSync()
	}
	w.b.Wipe() // nothing more can be fetched
	b.wantHead()
}

func TestAVeryLongBodyIsAnObject(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	for i := range 700 {
		e := edit{}
		for k := range 100 {
			e[fmt.Sprint(k)] = text(noise(uint64(i*100+k), 120))
		}
		a.commit(e)
	}
	a.mustSync()
	if n, _ := w.objects(wire.KindEntry); n != 1 {
		t.Fatalf("%d entries", n)
	}
	b.mustSync()
	if x, y := a.wantHead(), b.wantHead(); x.ID != y.ID {
		t.Fatalf("heads %s and %s", x.ID.Short(), y.ID.Short())
	}
}

// TestUploadsAreUsedAfterACrash fails the request n, ends the process, and goes on: whatever was
// uploaded before is not uploaded again.
func TestUploadsAreUsedAfterACrash(t *testing.T) {
	for fail := 1; ; fail++ {
		w := newWorld(t)
		a, b := w.device(), w.device()
		a.mustSync()
		a.commit(edit{"long": text(noise(1, 20<<20)), "lazy": {noise(2, 17<<20), true}})
		big := edit{}
		for i := range 2000 {
			big[fmt.Sprintf("key %d", i)] = text(noise(uint64(i), 30))
		}
		a.commit(big)
		n, failed := 0, false
		w.b.SetBefore(func(op bucket.Op, name string) error {
			if op != bucket.OpPut {
				return nil
			}
			if n++; n == fail {
				failed = true
				return base.ErrNetwork
			}
			return nil
		})
		err := a.sync()
		if failed != (err != nil) {
			t.Fatalf("request %d: %v", fail, err)
		}
		a.crash()
		w.b.SetBefore(nil)
		a.mustSync()
		b.mustSync()
		b.wantHead()
		if n, bytes := w.objects(wire.KindPack); n != 5 && n != 4 || bytes > 39<<20 {
			t.Fatalf("request %d: %d packs of %d bytes", fail, n, bytes)
		}
		if !failed {
			if fail < 5 {
				t.Fatalf("%d requests", fail)
			}
			return
		}
	}
}

func TestPacksAreAnnouncedAhead(t *testing.T) {
	if tier.Level() == 0 {
		t.Skip("300 MiB")
	}
	w := newWorld(t)
	a := w.device()
	a.mustSync()
	for i := range 20 {
		a.commit(edit{fmt.Sprint(i): text(noise(uint64(i), 16<<20))})
	}
	announced, stopped := 0, errors.New("stopped")
	_, err := a.page.Next(t.Context(), func(ctx context.Context, body *wire.EntryBody) (bool, error) {
		if announced++; announced > 1 {
			return false, stopped
		}
		return a.log.Append(ctx, body)
	})
	if err != nil || announced != 1 || a.unsynced() != 20 {
		t.Fatalf("%d announcements, %d commits are unsynced, %v", announced, a.unsynced(), err)
	}
	a.mustSync()
	if n, _ := w.objects(wire.KindEntry); n < 2 || n > 3 {
		t.Fatalf("%d entries", n)
	}
	if _, bytes := w.objects(wire.KindPack); bytes > 330<<20 {
		t.Fatalf("%d bytes of packs", bytes)
	}
	// The same again, under keys whose values go up whole: what is there already is no part of it,
	// and what went up for it goes up once.
	a.close()
	a.again = func([]byte) bool { return true }
	a.open()
	for i := range 20 {
		a.commit(edit{fmt.Sprint("again ", i): text(noise(uint64(i), 16<<20))})
	}
	_, err = a.page.Next(t.Context(), func(context.Context, *wire.EntryBody) (bool, error) { return false, stopped })
	if !errors.Is(err, stopped) {
		t.Fatal(err)
	}
	a.close()
	a.open()
	a.mustSync()
	if _, bytes := w.objects(wire.KindPack); bytes < 640<<20 || bytes > 660<<20 || len(a.page.State().Pending.Sent) > 0 {
		t.Fatalf("%d bytes of packs, state %+v", bytes, a.page.State().Pending)
	}
	// What is sent is looked through once, announcements or not.
	a.close()
	asked := map[string]int{}
	a.again = func(key []byte) bool {
		asked[string(key)]++
		return false
	}
	a.open()
	e := edit{}
	for i := range 20 {
		e[fmt.Sprint("one of many ", i)] = text(noise(uint64(100+i), 16<<20))
	}
	a.commit(e)
	a.mustSync()
	twice := 0
	for _, n := range asked {
		twice += n - 1
	}
	if len(asked) != len(e) || twice > 0 {
		t.Errorf("%d keys were looked at again: %v", twice, asked)
	}
	err = a.s.LocalPieces(t.Context(), func(d object.Digest) error { return fmt.Errorf("%s has no place", d) })
	if err != nil {
		t.Error(err)
	}
}

// TestPacksOfAPastEpoch: packs that are under way while an announcement meets another epoch go up
// again in that.
func TestPacksOfAPastEpoch(t *testing.T) {
	if tier.Level() == 0 {
		t.Skip("300 MiB, twice")
	}
	w := newWorld(t)
	a, b := w.device(), w.device()
	b.commit(edit{"other": text("1")})
	b.mustSync()
	a.mustSync()
	for i := range 20 {
		a.commit(edit{fmt.Sprint(i): text(noise(uint64(i), 16<<20))})
	}
	cut := false
	body, err := a.page.Next(t.Context(), func(ctx context.Context, body *wire.EntryBody) (bool, error) {
		if !cut {
			cut = true
			b.cut()
		}
		return a.log.Append(ctx, body)
	})
	if err != nil || body == nil || !cut || a.page.Position().Epoch != b.page.Position().Epoch {
		t.Fatalf("body %v, cut %t, at %v and %v: %v", body, cut, a.page.Position(), b.page.Position(), err)
	}
	a.mustSync()
	for _, d := range []*device{b, w.device()} {
		d.mustSync()
		if x, y := a.wantHead(), d.wantHead(); x.ID != y.ID {
			t.Fatalf("heads %s and %s", x.ID.Short(), y.ID.Short())
		}
	}
	err = a.s.LocalPieces(t.Context(), func(d object.Digest) error { return fmt.Errorf("%s has no place", d) })
	if err != nil {
		t.Error(err)
	}
}

// TestLongBodiesAreNotCompressed: a body that is an object of its own has many commits, and what is
// from different commits is not compressed together.
func TestLongBodiesAreNotCompressed(t *testing.T) {
	const commits, keys, length = 620, 60, 250
	w := newWorld(t)
	a := w.device()
	a.mustSync()
	for i := range commits {
		e := edit{}
		for k := range keys {
			e[fmt.Sprint("key ", (i*keys+k)%1000)] = text(strings.Repeat(string(rune('a'+i%26)), length))
		}
		a.commit(e)
	}
	a.mustSync()
	if _, bytes := w.objects(wire.KindPack); bytes < commits*keys*length {
		t.Errorf("%d bytes went up for %d", bytes, commits*keys*length)
	}
}

// TestValuesThatGoUpAgain: the body of a value that the bucket has is made again as long as it has
// not landed, and nothing goes up twice for it. Behind it nothing is left to be sent.
func TestValuesThatGoUpAgain(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.close()
	a.again = func(key []byte) bool { return key[0] == 's' }
	a.open()
	value := text(noise(1, 500_000))
	a.commit(edit{"k": value})
	a.mustSync()
	b.mustSync()
	_, before := w.objects(wire.KindPack)
	sent := func(when string, least int64) {
		t.Helper()
		if _, bytes := w.objects(wire.KindPack); bytes-before < least || bytes-before > least+least/8 {
			t.Errorf("%s: %d bytes went up", when, bytes-before)
		}
	}
	a.commit(edit{"other": value})
	a.mustSync()
	sent("under another key", 0)
	a.commit(edit{"s1": value, "s2": value})
	for range 3 {
		if out, err := a.page.Next(t.Context(), a.log.Append); err != nil || out == nil || a.unsynced() != 1 {
			t.Fatalf("%+v, %v", out, err)
		}
		sent("made", 500_000)
	}
	b.commit(edit{"b": text("1")}) // comes first
	b.mustSync()
	a.mustSync()
	sent("landed", 500_000)
	if out, err := a.page.Next(t.Context(), a.log.Append); err != nil || out != nil {
		t.Errorf("%+v, %v", out, err)
	}
	a.commit(edit{"s1": text("x")})
	a.mustSync()
	a.commit(edit{"s1": value})
	a.mustSync()
	sent("once more", 1_000_000)
	a.cut()
	b.mustSync()
	c := w.device()
	c.mustSync()
	wantSame(t, a, b, c)
}

func TestTagsAndRetentionGoUp(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	c := a.commit(edit{"a": text("1")})
	if err := a.s.SetTag(t.Context(), "one", c.ID); err != nil {
		t.Fatal(err)
	}
	a.mustSync()
	out, err := a.page.Retain(t.Context(), wire.Retention{Last: 7})
	if err == nil {
		_, err = a.log.Append(t.Context(), out)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.mustSync()
	tags, err := b.s.Tags(t.Context())
	if err != nil || len(tags) != 1 || tags["one"] != c.ID {
		t.Fatalf("tags %v, %v", tags, err)
	}
	if r := b.page.State().Retention; r.Last != 7 {
		t.Fatalf("retention %v", r)
	}
}

func TestExplanationsFollowTheirMerges(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	first := a.commit(edit{"a": text("1")})
	x, y := a.commitOn(edit{"x": text("1")}, nil, first), a.commitOn(edit{"y": text("1")}, nil, first)
	long := edit{}
	for i := range 1000 {
		long[fmt.Sprint(i)] = text(noise(uint64(i), 40))
	}
	merges := []*commit.Commit{a.commitOn(edit{}, edit{"why": text("so")}, x, y)}
	z := a.commitOn(edit{"z": text("1")}, nil, first)
	merges = append(merges, a.commitOn(edit{}, long, merges[0], z))
	a.mustSync()
	b.mustSync()
	b.wantHead()
	for _, m := range merges {
		want, _, err := a.s.Explanation(t.Context(), m.ID)
		got, ok, err2 := b.s.Explanation(t.Context(), m.ID)
		if err != nil || err2 != nil || !ok || got != want {
			t.Fatalf("explanation %s, want %s: %v %v", got.Short(), want.Short(), err, err2)
		}
	}
}

// TestMergeThatTwoDevicesMake applies an entry with a merge that the app makes too while the entry
// is read: the merge is in the log then, and the next entry stands on it.
func TestMergeThatTwoDevicesMake(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprint(durable), func(t *testing.T) { mergeMeanwhile(t, durable) })
	}
}

func mergeMeanwhile(t *testing.T, durable bool) {
	ctx := t.Context()
	w := newFleet(t, 4, 2)
	a, b := w.devices[0], w.devices[1]
	send := func(d *member) {
		t.Helper()
		_, err := d.log.CatchUp(ctx)
		w.must(err)
		body, err := d.body(ctx)
		w.must(err)
		_, err = d.log.Append(ctx, body)
		w.must(err)
	}
	base := b.commit(puts{"k": {content: []byte("1")}})
	w.must(b.sync(ctx))
	w.must(a.sync(ctx))
	a.commit(puts{"a": {content: []byte("2")}}, base)
	b.commit(puts{"b": {content: []byte("3")}}, base)
	send(a)
	send(b)
	_, err := a.log.CatchUp(ctx)
	w.must(err)
	heads := a.store.Heads()
	made := b.merge(heads[0], heads[1])
	b.commit(puts{"long": {content: w.noise(2 << 20)}}, made) // the entry announces a pack
	send(b)
	merges, wait := 0, func() error { return nil }
	w.bucket.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpGet && strings.Contains(name, "/packs/") && merges == 0 {
			merges++
			c, pending := a.submitMerge(heads[0], heads[1])
			if wait = pending.Wait; durable {
				w.must(wait())
			}
			if c.ID != made.ID {
				t.Errorf("merged as %s and %s", c.ID.Short(), made.ID.Short())
			}
		}
		return nil
	})
	_, err = a.log.CatchUp(ctx)
	w.must(err)
	w.must(wait())
	w.bucket.SetBefore(nil)
	if mine, err := a.store.Unsynced(ctx); merges != 1 || len(mine) > 0 || err != nil {
		t.Errorf("%d merges meanwhile, unsynced %v, %v", merges, mine, err)
	}
	b.commit(puts{"late": {content: []byte("4")}}, made)
	send(b)
	_, err = a.log.CatchUp(ctx)
	w.must(err)
}
