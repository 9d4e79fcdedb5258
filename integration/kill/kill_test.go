package kill_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/internal/tier"
)

// dirVariable names the directory of the repository for a process that is to write until it is
// killed.
const dirVariable = "LEDGER_TEST_KILL_DIR"

const writers = 4

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		if err := write(context.Background(), dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	removeProgram()
	os.Exit(code)
}

// write commits until it is killed, and says after each commit which it was. Segments are small and
// pages are opened anew now and then, so that files are begun, folded and closed at all times.
func write(ctx context.Context, dir string) error {
	fmt.Println("opening")
	repo, err := ledger.Open(ctx, dir, &ledger.Options{SegmentBytes: 256 << 10, LockTimeout: 5 * time.Minute})
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		p, err := repo.Page(ctx, "kill", "page")
		if err != nil {
			return err
		}
		fmt.Println("open")
		var wg sync.WaitGroup
		errs := make([]error, writers)
		for w := range writers {
			wg.Go(func() { errs[w] = writeSome(ctx, p, w, 60) })
		}
		wg.Wait()
		if err := errors.Join(append(errs, p.Close())...); err != nil {
			return err
		}
	}
}

// writeSome makes n commits, the k-th of which writes a row k, and k into two counters.
func writeSome(ctx context.Context, p *ledger.Page, w, n int) error {
	for range n {
		var k int
		_, err := p.Update(ctx, func(tx *ledger.Tx) error {
			var err error
			if k, err = counter(ctx, tx, key(w, "first")); err != nil {
				return err
			}
			k++
			value := []byte(strconv.Itoa(k))
			if k%10 == 0 {
				value = large(w, k)
			}
			return errors.Join(
				tx.Put(ctx, key(w, "first"), []byte(strconv.Itoa(k))),
				tx.Put(ctx, rowKey(w, k), value),
				tx.Put(ctx, key(w, "second"), []byte(strconv.Itoa(k))),
			)
		})
		if err != nil {
			return err
		}
		fmt.Printf("ack %d %d\n", w, k) // one write of a line: it comes whole or not at all
	}
	return nil
}

func key(w int, name string) []byte { return fmt.Appendf(nil, "%s %d", name, w) }

func rowKey(w, k int) []byte { return fmt.Appendf(nil, "row %d %08d", w, k) }

// large is a value of several pieces, every fifth of them of some hundred KiB.
func large(w, k int) []byte {
	rng := rand.New(rand.NewPCG(uint64(w), uint64(k)))
	n := 5 << 10
	if k%50 == 0 {
		n = 300 << 10
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

type getter interface {
	Get(ctx context.Context, key []byte) ([]byte, error)
}

func counter(ctx context.Context, g getter, key []byte) (int, error) {
	b, err := g.Get(ctx, key)
	if errors.Is(err, ledger.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// victim says when a writer is killed: as it opens the repository, or after some acknowledged
// commits.
type victim struct{ opening, acks int }

// kill runs a writer until its time has come, and notes what it acknowledged.
func kill(t *testing.T, dir string, v victim, acked []int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), dirVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	seen := victim{}
	killed := false
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break // what was acknowledged before the kill has been read
		}
		f := strings.Fields(line)
		switch f[0] {
		case "opening":
			seen.opening++
		case "ack":
			seen.acks++
			w, _ := strconv.Atoi(f[1])
			k, _ := strconv.Atoi(f[2])
			acked[w] = max(acked[w], k)
		case "error":
			t.Error("writer:", line)
		}
		if !killed && (v.acks > 0 && seen.acks >= v.acks || v.acks == 0 && seen.opening >= v.opening) {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // says that it was killed
	if !killed {
		t.Fatal("the writer ended by itself")
	}
}

// look opens the repository and compares it with what was acknowledged.
func look(t *testing.T, dir string, acked []int, check bool) {
	t.Helper()
	ctx := t.Context()
	repo, err := ledger.Open(ctx, dir, &ledger.Options{LockTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := repo.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := repo.Page(ctx, "kill", "page")
	if err != nil {
		t.Fatal(err)
	}
	err = p.View(ctx, func(s *ledger.Snapshot) error {
		for w := range writers {
			if err := lookAt(ctx, s, w, acked[w]); err != nil {
				return fmt.Errorf("writer %d: %w", w, err)
			}
		}
		return nil
	})
	if err := errors.Join(err, p.Close()); err != nil {
		t.Fatal(err)
	}
	if !check {
		return
	}
	r, err := admin.Check(ctx, repo, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Fatalf("check: %+v", r)
	}
}

func lookAt(ctx context.Context, s *ledger.Snapshot, w, acked int) error {
	first, err := counter(ctx, s, key(w, "first"))
	if err != nil {
		return err
	}
	second, err := counter(ctx, s, key(w, "second"))
	if err != nil {
		return err
	}
	if first < acked {
		return fmt.Errorf("commit %d was acknowledged, and %d is the last", acked, first)
	}
	if first != second {
		return fmt.Errorf("a part of a commit: counters are %d and %d", first, second)
	}
	k := 0
	for e, err := range s.Scan(ctx, ledger.ScanOptions{Prefix: fmt.Appendf(nil, "row %d ", w)}) {
		if err != nil {
			return err
		}
		k++
		v, err := e.Value(ctx)
		if err != nil {
			return err
		}
		want := strconv.Itoa(k)
		if k%10 == 0 {
			want = string(large(w, k))
		}
		if string(e.Key) != string(rowKey(w, k)) || string(v) != want {
			return fmt.Errorf("row %d is wrong", k)
		}
	}
	if k != first {
		return fmt.Errorf("%d rows, want %d", k, first)
	}
	return nil
}

// TestKill kills a writer again and again in one directory: what it acknowledged is there, and no
// part of what it did not.
func TestKill(t *testing.T) {
	kills := tier.Of(6, 20, 200)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 9))
	dir := t.TempDir()
	acked := make([]int, writers)
	for i := range kills {
		v := victim{acks: 1 + rng.IntN(150)}
		if i%5 == 0 {
			v = victim{opening: 1}
		}
		kill(t, dir, v, acked)
		if i%3 == 1 && i < kills-1 {
			continue // the next writer mends it
		}
		look(t, dir, acked, i == kills-1 || i%10 == 9)
		if t.Failed() {
			t.Fatalf("LEDGER_SEED=%d, kill %d, acknowledged %v", seed, i, acked)
		}
	}
	t.Logf("%d kills, acknowledged %v", kills, acked)
}
