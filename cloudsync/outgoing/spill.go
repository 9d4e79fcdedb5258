package outgoing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// spillBytes is how much of an object is held in memory before it goes to a file.
const spillBytes = 16 << 20

// spill takes an object whose length is known only at its end: up to limit bytes in memory, more in a temporary file in dir. Without a dir,
// as for pages in memory, all stays there. What it holds is sealed.
type spill struct {
	dir   string
	limit int
	buf   bytes.Buffer
	file  *os.File
	bytes int64
}

func newSpill(dir string) *spill { return &spill{dir: dir, limit: spillBytes} }

// Write implements io.Writer.
func (s *spill) Write(p []byte) (int, error) {
	if s.file == nil && s.dir != "" && s.buf.Len()+len(p) > s.limit {
		if err := s.toFile(); err != nil {
			return 0, err
		}
	}
	var n int
	var err error
	if s.file != nil {
		n, err = s.file.Write(p)
	} else {
		n, err = s.buf.Write(p)
	}
	s.bytes += int64(n)
	if err != nil {
		return n, fmt.Errorf("write temporary file: %w", err)
	}
	return n, nil
}

func (s *spill) toFile() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make temporary file: %w", err)
	}
	f, err := os.CreateTemp(s.dir, "upload-*")
	if err != nil {
		return fmt.Errorf("make temporary file: %w", err)
	}
	s.file = f
	if _, err := f.Write(s.buf.Bytes()); err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	s.buf = bytes.Buffer{}
	return nil
}

// reader returns the object from its beginning.
func (s *spill) reader() (io.ReadSeeker, error) {
	if s.file == nil {
		return bytes.NewReader(s.buf.Bytes()), nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read temporary file: %w", err)
	}
	return s.file, nil
}

// close removes the file. What it returns is for who has no other error.
func (s *spill) close() error {
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

// put uploads what is in s as an object that nobody else makes: when the name is taken by one of the same length, an earlier try
// has done it.
func (s *spill) put(ctx context.Context, b bucket.Bucket, name string) error {
	r, err := s.reader()
	if err != nil {
		return err
	}
	err = b.PutIfAbsent(ctx, name, s.bytes, r)
	if errors.Is(err, bucket.ErrExists) {
		if size, _, lookErr := look(ctx, b, name); lookErr == nil && size == s.bytes {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("upload %s: %w", name, err)
	}
	return nil
}
