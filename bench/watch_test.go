package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
)

// BenchmarkNotification changes one key of a million in a commit of its own, in turns with somebody
// who waits in a Watch and with nobody. ratio is the time from the beginning of a commit until the
// loop of the watch has it, to that of a commit that nobody waits for; commit-ratio is what the
// waiting adds to the commit itself, and behind-us how long after the commit has returned the loop
// has it. A round is 20 of each and counts by its medians.
func BenchmarkNotification(b *testing.B) {
	repo, page := openPage(b, copied(b, millionPage(b)), ledger.Options{})
	warm(b, page)
	d, rng := million(), generator(7)
	const each = 20
	commit := func() {
		must(b, put(b, page, d.keys[rng.IntN(len(d.keys))][:], d.values[rng.IntN(len(d.values))][:]))
	}
	alone := func() (s samples) {
		for range each {
			s.add(timed(commit))
		}
		return s
	}
	watched := func() (committed, told samples) {
		arrived, stop := watch(b, page)
		defer stop()
		for range each {
			start := time.Now()
			commit()
			committed.add(time.Since(start))
			told.add((<-arrived).Sub(start))
		}
		return committed, told
	}
	var notified, committed pair
	var behind samples
	for b.Loop() {
		alone() // the first ones make the segment
		for i := range scaled(150, 5) {
			var without, with, told samples
			if i%2 == 0 {
				without = alone()
				with, told = watched()
			} else {
				with, told = watched()
				without = alone()
			}
			notified.ours.add(told.median())
			notified.theirs.add(without.median())
			committed.ours.add(with.median())
			committed.theirs.add(without.median())
			behind.add(told.median() - with.median())
		}
	}
	closePage(b, repo, page)
	report(b, map[string]float64{
		"ratio": notified.ratio(), "commit-ratio": committed.ratio(), "notified-us": us(notified.ours.median()),
		"behind-us": us(behind.median()), "watched-us": us(committed.ours.median()), "alone-us": us(committed.theirs.median()),
	})
}

// watch watches the page until stop is called, and sends when each notification has come.
func watch(b *testing.B, page *ledger.Page) (told <-chan time.Time, stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	times, ended := make(chan time.Time), make(chan struct{})
	changes := page.Watch(ctx, nil)
	go func() {
		defer close(ended)
		for _, err := range changes {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					b.Errorf("watch: %v", err)
				}
				close(times)
				return
			}
			times <- time.Now()
		}
	}()
	return times, func() {
		cancel()
		<-ended
	}
}
