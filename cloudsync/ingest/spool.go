package ingest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ledgerd/ledger/commit"
)

// spoolBytes is how much of the commits of a checkpoint is held in memory; more goes to a file.
const spoolBytes = 1 << 20

// spool keeps the commits of a checkpoint, in their order, to be read again: in memory, or in a temporary file in dir when they are long. Without a dir, as for pages in memory, all stays there.
type spool struct {
	dir   string
	limit int // of memory
	buf   bytes.Buffer
	file  *os.File
	out   *bufio.Writer
	bytes int64
}

// add adds a commit.
func (s *spool) add(c *commit.Commit) error {
	b := c.Encode()
	if s.file == nil && s.dir != "" && s.buf.Len()+len(b) > s.limit {
		if err := s.toFile(); err != nil {
			return fmt.Errorf("keep commits in a temporary file: %w", err)
		}
	}
	var w io.Writer = &s.buf
	if s.file != nil {
		w = s.out
	}
	s.bytes += int64(len(b))
	for _, part := range [][]byte{binary.AppendUvarint(nil, uint64(len(b))), b} {
		if _, err := w.Write(part); err != nil {
			return fmt.Errorf("keep commits in a temporary file: %w", err)
		}
	}
	return nil
}

func (s *spool) toFile() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "commits-*")
	if err != nil {
		return err
	}
	s.file, s.out = f, bufio.NewWriterSize(f, 64<<10)
	_, err = s.out.Write(s.buf.Bytes())
	s.buf = bytes.Buffer{}
	return err
}

// each calls fn with each commit and its number.
func (s *spool) each(fn func(i int, c *commit.Commit) error) error {
	var r io.Reader = bytes.NewReader(s.buf.Bytes())
	if s.file != nil {
		err := s.out.Flush()
		if err == nil {
			_, err = s.file.Seek(0, io.SeekStart)
		}
		if err != nil {
			return fmt.Errorf("read a temporary file: %w", err)
		}
		r = s.file
	}
	in := bufio.NewReaderSize(r, 64<<10)
	for i := 0; ; i++ {
		n, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) && n == 0 {
			return nil
		}
		b := []byte(nil)
		if err == nil && n > maxHeaderBytes {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			b = make([]byte, n)
			_, err = io.ReadFull(in, b)
		}
		if err != nil {
			return fmt.Errorf("read a temporary file: %w", err)
		}
		c, err := commit.Parse(b)
		if err != nil {
			return fmt.Errorf("read commit %d from a temporary file: %w", i, err)
		}
		if err := fn(i, c); err != nil {
			return err
		}
	}
}

// close removes the file. What it returns is for who has no other error.
func (s *spool) close() error {
	s.buf = bytes.Buffer{}
	if s.file == nil {
		return nil
	}
	name := s.file.Name()
	err := errors.Join(s.file.Close(), os.Remove(name))
	s.file = nil
	if err != nil {
		return fmt.Errorf("remove a temporary file: %w", err)
	}
	return nil
}
