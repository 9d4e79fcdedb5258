package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/clock"
	"golang.org/x/term"
)

// progressEvery is the interval at which the progress line is redrawn.
const progressEvery = 200 * time.Millisecond

// counters are the progress of a long verb; a total of 0 is unknown.
type counters struct {
	files, totalFiles int64
	bytes, totalBytes int64
	what              string
}

// progress shows one line on a terminal while a verb runs. A nil progress shows nothing.
type progress struct {
	w      io.Writer
	clock  clock.Clock
	width  func() int
	verb   string
	noun   string
	start  time.Time
	stop   context.CancelFunc
	drawer sync.WaitGroup

	mu    sync.Mutex
	state counters        // guarded by mu
	looks func(*counters) // guarded by mu; nil for none
	drawn bool            // only used by the drawing goroutine, and after it has ended
}

// startProgress begins to show progress if the standard error is a terminal and no flag forbids it.
func (a *app) startProgress(ctx context.Context, verb, noun string) *progress {
	f, ok := isTerminal(a.process.Stderr, term.IsTerminal)
	if !ok || a.quiet || a.json || a.noProgress {
		return nil
	}
	width := func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil || w < 20 {
			return 80
		}
		return w
	}
	return newProgress(ctx, f, a.process.Clock, width, verb, noun)
}

// newProgress starts the drawing goroutine, which ends at finish or when ctx ends.
func newProgress(ctx context.Context, w io.Writer, c clock.Clock, width func() int, verb, noun string) *progress {
	ctx, stop := context.WithCancel(ctx)
	p := &progress{w: w, clock: c, width: width, verb: verb, noun: noun, start: c.Now(), stop: stop}
	p.drawer.Go(func() {
		for pause(ctx, p.clock, progressEvery) == nil {
			p.draw()
		}
	})
	return p
}

// pause waits for d. If ctx ends first, pause returns the error of ctx.
func pause(ctx context.Context, c clock.Clock, d time.Duration) error {
	due, release := c.After(d)
	defer release()
	select {
	case <-due:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look lets fn change the counters whenever the line is drawn.
func (p *progress) look(fn func(*counters)) {
	p.update(func(*counters) { p.looks = fn })
}

// update changes the counters.
func (p *progress) update(fn func(*counters)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.state)
}

// finish stops drawing and clears the line.
func (p *progress) finish() {
	if p == nil {
		return
	}
	p.stop()
	p.drawer.Wait()
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func (p *progress) draw() {
	p.mu.Lock()
	state, looks := p.state, p.looks
	p.mu.Unlock()
	if looks != nil {
		looks(&state)
	}
	line := progressLine(p.verb, p.noun, state, p.clock.Now().Sub(p.start), p.width()-1)
	fmt.Fprint(p.w, "\r"+line+"\x1b[K")
	p.drawn = true
}

// progressLine returns the progress line, cut to width columns: numbers, rate, time left and the
// current item.
func progressLine(verb, noun string, c counters, elapsed time.Duration, width int) string {
	files := fmt.Sprint(c.files) + choose(c.totalFiles > 0, fmt.Sprintf("/%d", c.totalFiles), "") + " " + noun
	size := sizeText(c.bytes) + choose(c.totalBytes > 0, " of "+sizeText(c.totalBytes), "")
	rate := sizeText(int64(float64(c.bytes)/max(elapsed, time.Second).Seconds())) + "/s"
	left, known := timeLeft(c, elapsed)
	line := verb + " " + joined(", ", choose(c.files > 0 || c.totalFiles > 0, files, ""), size,
		choose(elapsed >= time.Second, rate, ""), choose(known, durationText(left)+" left", ""))
	line = joined("  ", line, printable(c.what))
	runes := []rune(line)
	if len(runes) > width {
		runes = append(runes[:max(width-1, 0)], '…')
	}
	return string(runes)
}

// timeLeft extrapolates from the share of bytes or of files that is done, whichever is less.
func timeLeft(c counters, elapsed time.Duration) (time.Duration, bool) {
	if elapsed < 2*time.Second {
		return 0, false
	}
	done := 1.0
	if c.totalBytes > 0 {
		done = min(done, float64(c.bytes)/float64(c.totalBytes))
	}
	if c.totalFiles > 0 {
		done = min(done, float64(c.files)/float64(c.totalFiles))
	}
	if c.totalBytes == 0 && c.totalFiles == 0 || done < 0.005 {
		return 0, false
	}
	return time.Duration(float64(elapsed) * (1 - done) / done), true
}

// follow takes over the progress of a call of the library. Totals that the call does not know stay.
func (p *progress) follow(now ledger.Progress) {
	p.update(func(c *counters) {
		*c = counters{now.Done, cmp.Or(now.Total, c.totalFiles), now.Bytes, cmp.Or(now.TotalBytes, c.totalBytes), now.Now}
	})
}

// measure determines the totals concurrently with the work. stop ends the counting and waits for
// it.
func (p *progress) measure(ctx context.Context, count func(context.Context) (files, bytes int64, err error)) (stop func()) {
	if p == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var counting sync.WaitGroup
	counting.Go(func() {
		files, bytes, err := count(ctx)
		if err == nil { // else no time left is shown; the work reports the error
			p.update(func(c *counters) { c.totalFiles, c.totalBytes = files, bytes })
		}
	})
	return func() {
		cancel()
		counting.Wait()
	}
}
