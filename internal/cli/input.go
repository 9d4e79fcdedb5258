package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// interruptible returns a reader of r whose Read fails when ctx ends, even while r waits for input.
// The goroutine of the abandoned read then stays until the process ends.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		buf := make([]byte, len(p)) // the caller may reuse p after ctx ends
		go func() {
			n, err := r.Read(buf)
			done <- result{n, err}
		}()
		select {
		case got := <-done:
			return copy(p, buf[:got.n]), got.err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

// aheadBytes is the most that readAhead reads.
const aheadBytes = 1 << 20

// readAhead reads the beginning of r, and returns a reader of all of r. With it a verb waits for a
// slow input of ordinary length before it opens its page, where it would keep other writers
// waiting.
func readAhead(ctx context.Context, r io.Reader) (io.Reader, error) {
	r = interruptible(ctx, r)
	begin, err := io.ReadAll(io.LimitReader(r, aheadBytes))
	return io.MultiReader(bytes.NewReader(begin), r), err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// openFile opens a file. A named pipe opens only when another process opens it too, and a read or
// write of one may wait. Both fail when ctx ends.
func openFile(ctx context.Context, path string, flag int) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result, 1)
	go func() {
		file, err := os.OpenFile(path, flag, 0)
		done <- result{file, err}
	}()
	select {
	case got := <-done:
		if got.err == nil {
			context.AfterFunc(ctx, func() { _ = got.file.SetDeadline(time.Unix(1, 0)) }) // fails for files that never wait
		}
		return got.file, got.err
	case <-ctx.Done():
		if info, err := os.Stat(path); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
			return nil, ctx.Err()
		}
		if bothEnds, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil { // ends the wait above
			got := <-done
			_ = errors.Join(got.file.Close(), bothEnds.Close()) // nothing was read or written
		}
		return nil, ctx.Err()
	}
}
