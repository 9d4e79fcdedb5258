package index_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/storage/index"
)

var errRollback = errors.New("roll back")

// TestModel runs the same transactions on a file and in memory and compares every result, cursors
// that move while rows change included (I5). The file is reopened now and then.
func TestModel(t *testing.T) {
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", n))
		file := open(rt, path)
		defer func() { file.Close() }()
		memory := index.NewMemory()
		for range rapid.IntRange(1, 12).Draw(rt, "transactions") {
			switch rapid.IntRange(0, 5).Draw(rt, "kind") {
			case 0:
				if err := file.Close(); err != nil {
					rt.Fatal(err)
				}
				file = open(rt, path)
			case 1:
				memory = memory.Clone()
			}
			script := drawScript(rt)
			var got, want []string
			outcome := func(log *[]string) func(index.Tx) error {
				return func(tx index.Tx) error {
					*log = script.run(tx)
					if script.rollback {
						return errRollback
					}
					return nil
				}
			}
			var errFile, errMemory error
			if script.view {
				errFile, errMemory = file.View(outcome(&got)), memory.View(outcome(&want))
			} else {
				errFile, errMemory = file.Update(outcome(&got)), memory.Update(outcome(&want))
			}
			if errFile != errMemory {
				rt.Fatalf("file: %v, memory: %v", errFile, errMemory)
			}
			if d := cmp.Diff(want, got); d != "" {
				rt.Fatalf("memory and file differ (-memory +file):\n%s", d)
			}
			if d := cmp.Diff(dump(rt, memory), dump(rt, file)); d != "" {
				rt.Fatalf("rows differ (-memory +file):\n%s", d)
			}
		}
	})
}

// names are the buckets of the tests.
var names = []string{"a", "b", "refs/object", "empty", "inline", "leaf", "branch", "deep", "overflow", "new", "last"}

type fataler interface {
	Helper()
	Fatal(...any)
}

func open(t fataler, path string) *index.File {
	t.Helper()
	f, err := index.OpenFile(path, index.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// dump lists all rows.
func dump(t fataler, db index.DB) (rows []string) {
	t.Helper()
	err := db.View(func(tx index.Tx) error {
		for _, name := range names {
			b := tx.Bucket(name)
			if b == nil {
				continue
			}
			var there []string
			c := b.Cursor()
			for k, v := c.First(); k != nil; k, v = c.Next() {
				there = append(there, fmt.Sprintf("%s %x=%x", name, k, v))
				if got := b.Get(k); got == nil || !bytes.Equal(got, v) {
					return fmt.Errorf("get %x is not what the cursor gives", k)
				}
			}
			rows = append(append(rows, name), there...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// step is one operation. Numbers are drawn small so that operations meet each other.
type step struct {
	op      int
	bucket  string
	key     int
	n, size int
}

type script struct {
	view, rollback bool
	steps          []step
}

func drawScript(rt *rapid.T) script {
	s := script{view: rapid.IntRange(0, 4).Draw(rt, "view") == 0, rollback: rapid.IntRange(0, 6).Draw(rt, "rollback") == 0}
	for range rapid.IntRange(1, 25).Draw(rt, "steps") {
		s.steps = append(s.steps, step{
			op:     rapid.IntRange(0, 13).Draw(rt, "op"),
			bucket: rapid.SampledFrom([]string{"a", "b", "refs/object"}).Draw(rt, "bucket"),
			key:    rapid.IntRange(0, 900).Draw(rt, "key"),
			n:      rapid.IntRange(1, 400).Draw(rt, "n"),
			size:   rapid.SampledFrom([]int{0, 1, 30, 200, 1500, 9000}).Draw(rt, "size"),
		})
	}
	return s
}

func keyOf(i int) []byte { return fmt.Appendf(nil, "%04d", i) }

func (s script) run(tx index.Tx) (log []string) {
	note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	cursors := map[string]index.Cursor{}
	for i, st := range s.steps {
		if st.op == 0 {
			note("bucket there %v", tx.Bucket(st.bucket) != nil)
			continue
		}
		b := tx.Bucket(st.bucket)
		if b == nil {
			note("no bucket %s", st.bucket)
			continue
		}
		c := cursors[st.bucket]
		if c == nil {
			c = b.Cursor()
			cursors[st.bucket] = c
		}
		row := func(k, v []byte) {
			note("%d: %q %d bytes, nil %v", i, k, len(v), v == nil)
		}
		k := keyOf(st.key)
		switch st.op {
		case 2, 3: // a run of rows
			b.SetFillPercent([]float64{0.5, 1}[st.n%2])
			for j := range st.n {
				if err := b.Put(keyOf(st.key+j), bytes.Repeat([]byte{byte(i)}, st.size)); err != nil {
					note("put %v", err)
					break
				}
			}
		case 4:
			for j := range st.n {
				if err := b.Delete(keyOf(st.key + j)); err != nil {
					note("delete %v", err)
					break
				}
			}
		case 5: // delete behind a moving cursor
			for k, v := c.Seek(k); k != nil && st.n > 0; k, v = c.Next() {
				row(k, v)
				if st.n--; st.n%3 != 0 {
					note("%v", b.Delete(k))
				}
			}
		case 6, 7:
			row(k, b.Get(k))
		case 8:
			row(c.Seek(k))
		case 9:
			row(c.Next())
		case 10, 11, 12:
			row(c.First())
		default:
			note("put %v", b.Put(k, nil))
		}
	}
	return log
}
