package ingest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/spool"
)

// maxCommitBytes is more than the longest commit has.
const maxCommitBytes = 64 << 10

// spoolBytes is how much of the commits of a checkpoint is held in memory; more goes to a file.
const spoolBytes = 1 << 20

// commitSpool keeps the commits of a checkpoint, in their order, to be read again.
type commitSpool struct {
	*spool.Spool
	header []byte
}

func newCommitSpool(dir string, limit int) *commitSpool {
	return &commitSpool{Spool: spool.New(dir, "commits-*", limit)}
}

// add adds a commit.
func (s *commitSpool) add(c *commit.Commit) error {
	b := c.Encode()
	s.header = binary.AppendUvarint(s.header[:0], uint64(len(b)))
	_, err := s.Write(s.header)
	if err == nil {
		_, err = s.Write(b)
	}
	if err != nil {
		return fmt.Errorf("keep commits: %w", err)
	}
	return nil
}

// each calls fn with each commit and its number.
func (s *commitSpool) each(fn func(i int, c *commit.Commit) error) error {
	r, err := s.Reader()
	if err != nil {
		return fmt.Errorf("read commits again: %w", err)
	}
	in := bufio.NewReaderSize(r, 64<<10)
	for i := 0; ; i++ {
		n, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) && n == 0 {
			return nil
		}
		b := []byte(nil)
		if err == nil && n > maxCommitBytes {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			b = make([]byte, n)
			_, err = io.ReadFull(in, b)
		}
		if err != nil {
			return fmt.Errorf("read commits again: %w", err)
		}
		c, err := commit.Parse(b)
		if err != nil {
			return fmt.Errorf("read commit %d again: %w", i, err)
		}
		if err := fn(i, c); err != nil {
			return err
		}
	}
}
