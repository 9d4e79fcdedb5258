package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
)

// BenchmarkRefusedWriters lets writers with Update and writers with FailOnConflict, who try again
// at once, commit to one page beside each other. least and most are what one of them has committed,
// of an equal share, which is to be within a factor of 4; kept is what the writers with Update
// commit, of what they do alone, which is to be a half at least.
func BenchmarkRefusedWriters(b *testing.B) {
	for _, n := range []struct{ strict, updates int }{{1, 4}, {2, 2}, {4, 4}, {4, 0}} {
		b.Run(fmt.Sprintf("%dBeside%d", n.strict, n.updates), func(b *testing.B) {
			var least, most, kept, refused []float64
			for b.Loop() {
				alone, _ := compete(b, 0, n.updates)
				done, conflicts := compete(b, n.strict, n.updates)
				share := sum(done) / float64(len(done))
				least, most = append(least, slices.Min(done)/share), append(most, slices.Max(done)/share)
				refused = append(refused, float64(conflicts)/max(1, sum(done[n.updates:])))
				if n.updates > 0 {
					kept = append(kept, sum(done[:n.updates])/sum(alone))
				}
			}
			metrics := map[string]float64{"least": median(least), "most": median(most), "refused/commit": median(refused)}
			if n.updates > 0 {
				metrics["kept"] = median(kept)
			}
			report(b, metrics)
		})
	}
}

func sum(all []float64) (s float64) {
	for _, v := range all {
		s += v
	}
	return s
}

// compete returns how many commits each writer makes in some time, those with Update first, and how
// many were refused.
func compete(b *testing.B, strict, updates int) (done []float64, conflicts int) {
	b.Helper()
	if strict+updates == 0 {
		return nil, 0
	}
	repo, page := openPage(b, tempDir(b), ledger.Options{})
	ctx, cancel := context.WithTimeout(b.Context(), time.Duration(scaled(2000, 200))*time.Millisecond)
	defer cancel()
	done = make([]float64, updates+strict)
	refused := make([]int, updates+strict)
	var wg sync.WaitGroup
	for w := range done {
		wg.Go(func() {
			for i := uint64(0); ctx.Err() == nil; i++ {
				change := func(tx *ledger.Tx) error {
					return tx.Put(ctx, fmt.Appendf(nil, "key %d", w), binary.AppendUvarint(nil, i))
				}
				var err error
				if w < updates {
					_, err = page.Update(ctx, change)
				} else {
					err = commitStrictly(ctx, page, change)
				}
				switch {
				case err == nil:
					done[w]++
				case errors.Is(err, ledger.ErrConflict):
					refused[w]++
				case ctx.Err() == nil:
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	closePage(b, repo, page)
	for _, n := range refused {
		conflicts += n
	}
	return done, conflicts
}

func commitStrictly(ctx context.Context, page *ledger.Page, change func(*ledger.Tx) error) error {
	tx, err := page.Begin(ctx, &ledger.TxOptions{FailOnConflict: true})
	if err != nil {
		return err
	}
	if err := change(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	_, err = tx.Commit(ctx)
	return err
}
