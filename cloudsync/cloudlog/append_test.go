package cloudlog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

var errTest = errors.New("test")

// once fails or intercepts the first request of an operation on a name that contains part.
func (c *cloud) once(op bucket.Op, part string, do func() error) {
	done := false
	c.bucket.SetBefore(func(o bucket.Op, name string) error {
		if done || o != op || !strings.Contains(name, part) {
			return nil
		}
		done = true
		return do()
	})
}

func TestVerify(t *testing.T) {
	month := 31 * 24 * time.Hour
	for _, k := range []struct {
		name string
		at   int
		do   func(c *cloud, at []format.Position)
		want error
	}{
		{"nothing read", 0, func(*cloud, []format.Position) {}, nil},
		{"as it was", 5, func(*cloud, []format.Position) {}, nil},
		{"wiped", 5, func(c *cloud, _ []format.Position) { c.bucket.Wipe() }, cloudlog.ErrRolledBack},
		{"rolled back", 5, func(c *cloud, _ []format.Position) { c.deleteEntries(4, 8) }, cloudlog.ErrRolledBack},
		{"rolled back and gone on", 5, func(c *cloud, at []format.Position) { c.deleteEntries(4, 8); c.device(at[3]).mustAppend(4) }, cloudlog.ErrReplaced},
		{"floor at the position", 5, func(c *cloud, _ []format.Position) {
			c.writeFloor(format.Floor{K: 1, Low: 6, Checkpoint: 6})
			c.clock.Advance(month)
			c.deleteEntries(1, 5)
		}, nil},
		{"floor behind the end", 8, func(c *cloud, _ []format.Position) {
			c.writeFloor(format.Floor{K: 1, Low: 9, Checkpoint: 8})
			c.clock.Advance(month)
			c.deleteEntries(1, 8)
		}, nil},
		{"floor passed the position", 5, func(c *cloud, _ []format.Position) {
			c.writeFloor(format.Floor{K: 1, Low: 7, Checkpoint: 7})
			c.clock.Advance(month)
			c.deleteEntries(1, 6)
		}, cloudlog.ErrPassed},
		{"floor passed the position within the grace", 5, func(c *cloud, _ []format.Position) {
			c.writeFloor(format.Floor{K: 1, Low: 7, Checkpoint: 7})
			c.deleteEntries(1, 5) // somebody was too early
		}, nil},
		{"replaced below a floor", 5, func(c *cloud, at []format.Position) {
			c.deleteEntries(1, 8)
			c.device(format.Position{}).mustAppend(8)
			c.writeFloor(format.Floor{K: 1, Low: 6, Checkpoint: 6})
			c.clock.Advance(month)
			c.deleteEntries(1, 5)
		}, cloudlog.ErrReplaced},
		{"bad", 5, func(c *cloud, _ []format.Position) { c.bucket.Replace(c.names.Entry(5), []byte("nonsense")) }, base.ErrCorrupt},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := newCloud(t, 1)
			at := c.filled(8)
			d := c.device(at[k.at])
			k.do(c, at)
			if err := d.Verify(t.Context()); !errors.Is(err, k.want) || k.want == nil && err != nil {
				t.Errorf("%v, want %v", err, k.want)
			}
			// A catch-up and an append that have to prove the position come to the same end.
			_, err := c.device(at[k.at]).append(d.body())
			if !errors.Is(err, k.want) || k.want == nil && err != nil {
				t.Errorf("append: %v, want %v", err, k.want)
			}
			if k.want == nil {
				d.mustCatchUp()
			}
		})
	}
}

func TestRollbackIsNoticed(t *testing.T) {
	c := newCloud(t, 1)
	a, b := c.device(format.Position{}), c.device(format.Position{})
	a.mustAppend(3)
	old := c.bucket.State()
	a.mustAppend(2)
	b.mustCatchUp()
	c.bucket.Rollback(old)
	b.mustCatchUp() // it looks like an idle log
	c.clock.Advance(7 * time.Hour)
	if _, err := b.CatchUp(t.Context(), false, b.apply); !errors.Is(err, cloudlog.ErrRolledBack) {
		t.Errorf("after seven hours: %v", err)
	}
	if _, err := a.append(a.body()); !errors.Is(err, cloudlog.ErrRolledBack) {
		t.Errorf("append after seven hours: %v", err)
	}
	late := c.device(format.Position{})
	late.mustAppend(4)
	if _, err := a.CatchUp(t.Context(), false, a.apply); !errors.Is(err, cloudlog.ErrReplaced) {
		t.Errorf("behind another history: %v", err)
	}
}

func TestAmbiguousPut(t *testing.T) {
	for _, k := range []struct {
		name   string
		faults mem.Faults
		puts   int64
	}{
		{"lost answers", mem.Faults{LostAnswer: 1}, 2},
		{"one write each second", mem.Faults{WriteInterval: time.Second}, 1},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := newCloud(t, 1)
			d := c.device(format.Position{})
			c.bucket.SetFaults(k.faults)
			b := d.body()
			var a cloudlog.Appended
			puts, _ := d.cost(func() {
				var err error
				if a, err = d.append(b); err != nil {
					t.Fatal(err)
				}
			})
			if puts != k.puts || a.Position.Number != 1 || a.Position != d.at || a.Lost != 0 || len(d.applied) != 1 || a.Created != c.clock.Now().Truncate(0) && k.puts == 1 {
				t.Errorf("%d puts, %+v", puts, a)
			}
		})
	}
}

func TestBusyEnds(t *testing.T) {
	c := newCloud(t, 1)
	d := c.device(format.Position{})
	c.bucket.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpPut {
			return &bucket.Error{Op: op, Name: name, Class: bucket.ClassBusy, Status: 429, Ambiguous: true}
		}
		return nil
	})
	if _, err := d.append(d.body()); !errors.Is(err, base.ErrNetwork) {
		t.Errorf("%v", err)
	}
	if n := d.meter.Counts().A; n > 40 {
		t.Errorf("%d puts", n)
	}
	c.bucket.SetBefore(nil)
	d.mustAppend(1)
}

func TestNeedsUser(t *testing.T) {
	c := newCloud(t, 1)
	d := c.device(format.Position{})
	c.bucket.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpPut {
			return bucket.NewStatusError(op, name, 403, nil)
		}
		return nil
	})
	if _, err := d.append(d.body()); bucket.ClassOf(err) != bucket.ClassDenied || d.meter.Counts().A != 1 {
		t.Errorf("%v after %d puts", err, d.meter.Counts().A)
	}
}

func TestI5Remake(t *testing.T) {
	p, q := format.ID{'p'}, format.ID{'q'}
	rely := func(b *format.Body) { b.Relies = []format.ID{p} }
	announce := func(b *format.Body) { b.Packs = []format.PackRef{{ID: p, Bytes: 100, Pieces: 1}} }
	relyEntry := func(b *format.Body) { b.ReliesEntries = []uint64{2} }
	condemn := func(b *format.Body) { b.Condemned = &format.Condemnation{Packs: []format.ID{p}} }
	condemnOther := func(b *format.Body) { b.Condemned = &format.Condemnation{Packs: []format.ID{q}, Below: 2} }
	below := func(b *format.Body) { b.Condemned = &format.Condemnation{Below: 3} }
	for _, k := range []struct {
		name         string
		first, later func(*format.Body)
		remake       bool
	}{
		{"relied", condemn, rely, true}, {"announced", condemn, announce, true}, {"entry", below, relyEntry, true},
		{"condemns what is relied on", rely, condemn, true}, {"condemns an entry that is relied on", relyEntry, below, true},
		{"other", condemnOther, rely, false}, {"entry stays", condemnOther, relyEntry, false}, {"both condemn", condemn, condemn, false},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := newCloud(t, 1)
			at := c.filled(4)
			a, b := c.device(at[4]), c.device(at[4])
			body := b.body(k.later)
			if _, err := a.append(a.body(k.first)); err != nil {
				t.Fatal(err)
			}
			want := error(nil)
			if k.remake {
				want = cloudlog.ErrRemake
			}
			if _, err := b.append(body); !errors.Is(err, want) || !k.remake && err != nil {
				t.Errorf("%v, want %v", err, want)
			}
			if b.applied[0].ID == body.ID || b.at.Number < 5 {
				t.Errorf("position %v", b.at)
			}
			// The Log remembers: the same body is not taken in a later call either.
			if k.remake && k.later != nil && strings.HasPrefix(k.name, "relied") {
				before := b.meter.Counts()
				if _, err := b.append(body); !errors.Is(err, cloudlog.ErrRemake) || b.meter.Counts() != before {
					t.Errorf("again: %v", err)
				}
			}
			if _, err := b.append(b.body()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEarlierLife(t *testing.T) {
	c := newCloud(t, 1)
	a := c.device(format.Position{})
	a.fail = errTest
	if _, err := a.append(a.body()); !errors.Is(err, errTest) || a.Position().Number != 0 {
		t.Fatalf("%v, position %v", err, a.Position())
	}
	b := c.device(format.Position{}) // the same device after a crash
	b.id = a.id
	if _, err := b.append(b.body()); !errors.Is(err, cloudlog.ErrRemake) || len(b.applied) != 1 {
		t.Errorf("%v, %d entries applied", err, len(b.applied))
	}
	b.mustAppend(1)
}

func TestEarlierLifeReadByCatchUp(t *testing.T) {
	c := newCloud(t, 1)
	a := c.device(format.Position{})
	a.mustAppend(1)
	b := c.device(format.Position{})
	b.id = a.id
	body := b.body()
	c.once(bucket.OpGet, "/log/", func() error { return bucket.NewStatusError(bucket.OpGet, "log", 403, nil) })
	if _, err := b.append(body); bucket.ClassOf(err) != bucket.ClassDenied {
		t.Fatal(err)
	}
	b.mustCatchUp()
	if _, err := b.append(body); !errors.Is(err, cloudlog.ErrRemake) {
		t.Errorf("%v", err)
	}
}

// TestFarBehind appends on a device that has missed many entries: it does not put at each of them.
func TestFarBehind(t *testing.T) {
	c := newCloud(t, 1)
	d := c.device(format.Position{})
	c.filled(60)
	puts, gets := d.cost(func() { d.mustAppend(1) })
	if d.at.Number != 61 || puts != 3 || gets > 75 {
		t.Errorf("%d puts and %d gets, position %v", puts, gets, d.at)
	}
}

func TestBytesChangedOnTheWay(t *testing.T) {
	c := newCloud(t, 1)
	c.filled(3)
	c.writeFloor(format.Floor{K: 1, Low: 1, Checkpoint: 1})
	for _, name := range []string{c.names.Entry(2), c.names.Floor(1)} {
		d := c.device(format.Position{})
		c.once(bucket.OpGet, name, func() error {
			c.bucket.SetFaults(mem.Faults{WrongByte: 1})
			c.once(bucket.OpGet, "", func() error { c.bucket.SetFaults(mem.Faults{}); return nil })
			return nil
		})
		if _, err := d.CatchUp(t.Context(), false, d.apply); err != nil || d.at.Number != 3 {
			t.Errorf("%v, position %v", err, d.at)
		}
	}
}

func TestAppendAgain(t *testing.T) {
	t.Run("settle fails", func(t *testing.T) {
		c := newCloud(t, 1)
		d := c.device(format.Position{})
		body := d.body()
		d.fail = errTest
		if _, err := d.append(body); !errors.Is(err, errTest) {
			t.Fatal(err)
		}
		d.fail = nil
		a, err := d.append(body)
		if err != nil || a.Position.Number != 1 || d.at != a.Position || len(d.applied) != 1 || a.Stored == 0 {
			t.Errorf("%v, %+v", err, a)
		}
	})
	t.Run("after a catch-up", func(t *testing.T) {
		c := newCloud(t, 1)
		d := c.device(format.Position{})
		body := d.body()
		d.fail = errTest
		if _, err := d.append(body); !errors.Is(err, errTest) {
			t.Fatal(err)
		}
		d.fail = nil
		d.mustCatchUp()
		other := c.device(format.Position{})
		other.mustAppend(2)
		a, err := d.append(body)
		if err != nil || a.Position != d.at || len(d.applied) != 1 || !a.Created.Equal(d.applied[0].Created) {
			t.Errorf("%v, %+v", err, a)
		}
		d.mustCatchUp()
		if d.at.Number != 3 {
			t.Errorf("position %v", d.at)
		}
	})
}

func TestContextEndsWaits(t *testing.T) {
	c := newCloud(t, 1)
	d := c.device(format.Position{}, func(o *cloudlog.Options) {
		o.Clock = mem.NewClock(start) // nothing moves it: whoever waits, waits for ever
		o.Bucket = c.bucket
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	refused := 0
	c.bucket.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpPut {
			return &bucket.Error{Op: op, Name: name, Class: bucket.ClassBusy, Status: 429, Ambiguous: true}
		}
		if refused++; refused == 2 { // the look at the name after the first put was the first get
			cancel(errTest)
		}
		return nil
	})
	if _, err := d.Append(ctx, d.body(), d.apply, d.settle); !errors.Is(err, errTest) {
		t.Errorf("%v", err)
	}
	if err := d.Verify(ctx); !errors.Is(err, errTest) {
		t.Errorf("with an ended context: %v", err)
	}
	c.bucket.SetBefore(nil)
	d.mustAppend(1)
}

func TestBatches(t *testing.T) {
	c := newCloud(t, 1)
	w := c.device(format.Position{})
	for range 10 {
		if _, err := w.append(w.body(func(b *format.Body) {
			zeros := make([]byte, 3000) // they compress well, and count as they are
			b.Pieces = []format.InlinePiece{{Digest: object.Sum(object.Chunk, zeros), Content: zeros}}
		})); err != nil {
			t.Fatal(err)
		}
	}
	d := c.device(format.Position{}, func(o *cloudlog.Options) { o.MaxBatchBytes = 10_000 })
	d.mustCatchUp()
	if len(d.batches) != 4 || d.batches[0] != 3 && d.batches[0] != 4 {
		t.Errorf("batches of %v", d.batches)
	}
	e := c.device(format.Position{}, func(o *cloudlog.Options) { o.MaxBatchBytes = 10_000 })
	c.once(bucket.OpGet, c.names.Entry(6), func() error { e.fail = errTest; return nil })
	if _, err := e.CatchUp(t.Context(), false, e.apply); !errors.Is(err, errTest) || e.Position() != e.at || e.at.Number == 0 || e.at.Number > 6 {
		t.Errorf("%v at %v, durable %v", err, e.Position(), e.at)
	}
	e.fail = nil
	e.mustCatchUp()
	if e.at != d.at {
		t.Errorf("position %v, want %v", e.at, d.at)
	}
}
