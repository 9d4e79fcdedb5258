package boltpage

import (
	"fmt"
	"io"
	"math"

	"github.com/ledgerd/ledger/internal/base"
)

// ReadMeta returns the meta page that bbolt will use: the valid one with the greater transaction.
func ReadMeta(r io.ReaderAt, size int64) (Meta, error) {
	buf := make([]byte, HeaderBytes+metaBytes)
	read := func(at int64) (Meta, bool) {
		if _, err := r.ReadAt(buf, at); err != nil {
			return Meta{}, false
		}
		return ParseMeta(buf)
	}
	m, ok := read(0)
	if ok {
		if other, ok := read(int64(m.PageBytes)); ok && other.Tx > m.Tx && other.PageBytes == m.PageBytes {
			m = other
		}
	}
	for at := int64(minPageBytes); !ok && at <= maxPageBytes; at *= 2 {
		if m, ok = read(at); ok && int64(m.PageBytes) != at {
			ok = false
		}
	}
	switch {
	case !ok:
		return Meta{}, &base.CorruptError{Want: "a valid meta page"}
	case m.Pages > uint64(size)/uint64(m.PageBytes):
		return Meta{}, &base.CorruptError{Want: fmt.Sprintf("%d pages", m.Pages), Got: fmt.Sprintf("%d bytes", size)}
	case m.Root < 2 || m.Root >= m.Pages || m.Free < 2 || m.Free >= m.Pages || m.Pages > math.MaxInt32:
		return Meta{}, &base.CorruptError{Key: "meta page", Want: "pages of the file", Got: fmt.Sprintf("root %d and free list %d of %d", m.Root, m.Free, m.Pages)}
	}
	return m, nil
}

// CheckFree verifies the list of free pages. It returns these pages, and those of the list itself:
// no tree may use them.
func CheckFree(r io.ReaderAt, m Meta) (*Set, error) {
	head := make([]byte, HeaderBytes)
	at := int64(m.Free) * int64(m.PageBytes)
	if _, err := r.ReadAt(head, at); err != nil {
		return nil, fmt.Errorf("read list of free pages: %w", err)
	}
	p := Page(head)
	n := uint64(p.Overflow()) + 1
	if p.ID() != m.Free || n > m.Pages-m.Free || n > 16*m.Pages/uint64(m.PageBytes)+3 {
		return nil, p.Damage(fmt.Sprintf("list of free pages %d", m.Free), "%d pages", n)
	}
	p = make(Page, n*uint64(m.PageBytes))
	if _, err := r.ReadAt(p, at); err != nil {
		return nil, fmt.Errorf("read list of free pages: %w", err)
	}
	free := NewSet(m.Pages)
	for i := range n {
		free.Add(m.Free + i)
	}
	return free, p.verifyFree(m, free)
}
