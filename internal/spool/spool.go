package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// bufferBytes is the size of writes to a file, and of the write buffer.
const bufferBytes = 64 << 10

// Spool stores written bytes and returns them. It ends with Close.
type Spool struct {
	dir, pattern string
	limit        int
	buf          bytes.Buffer
	file         *os.File
	out          *bufio.Writer
	size         int64
}

// New returns an empty Spool that holds up to limit bytes in memory. More bytes go to a temporary
// file in dir, which is created if missing, with a name from pattern as for os.CreateTemp. Without
// a dir all stays in memory.
func New(dir, pattern string, limit int) *Spool {
	return &Spool{dir: dir, pattern: pattern, limit: limit}
}

// Write appends p, which is not retained. It may block on the disk. Errors are those of the disk;
// after an error only Close may be called.
func (s *Spool) Write(p []byte) (n int, err error) {
	if s.file == nil && s.dir != "" && s.buf.Len()+len(p) > s.limit {
		if err := s.toFile(); err != nil {
			return 0, fmt.Errorf("make temporary file: %w", err)
		}
	}
	if s.file == nil {
		n, err = s.buf.Write(p)
	} else {
		n, err = s.out.Write(p)
	}
	if s.size += int64(n); err != nil {
		err = fmt.Errorf("write temporary file: %w", err)
	}
	return n, err
}

func (s *Spool) toFile() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, s.pattern)
	if err != nil {
		return err
	}
	s.file, s.out = f, bufio.NewWriterSize(f, bufferBytes)
	_, err = s.out.Write(s.buf.Bytes())
	s.buf = bytes.Buffer{}
	return err
}

// Size returns the number of bytes written.
func (s *Spool) Size() int64 { return s.size }

// Reader returns a reader of all written bytes, from the beginning. It is valid until the next call
// of Reader, Write or Close. Errors are those of the disk.
func (s *Spool) Reader() (io.ReadSeeker, error) {
	if s.file == nil {
		return bytes.NewReader(s.buf.Bytes()), nil
	}
	err := s.out.Flush()
	if err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("read temporary file: %w", err)
	}
	return s.file, nil
}

// Close frees the memory and removes the file. Its error matters only to a caller without another
// one. It is idempotent.
func (s *Spool) Close() error {
	s.buf = bytes.Buffer{}
	if s.file == nil {
		return nil
	}
	name := s.file.Name()
	err := errors.Join(s.file.Close(), os.Remove(name))
	s.file = nil
	if err != nil {
		return fmt.Errorf("remove temporary file: %w", err)
	}
	return nil
}
