package idb

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Rows is where databases are kept. Package indexeddb/pages has it for pages; Memory and Snapshot
// are others. Its methods may be used concurrently.
type Rows interface {
	// View returns the rows as they are now. They may be read until end is called, which is called
	// once.
	View(ctx context.Context) (r ordered.Reader, end func() error, err error)
	// Begin starts a transaction. It may wait for the end of others, or let Commit fail with
	// base.ErrConflict.
	Begin(ctx context.Context) (RowsTx, error)
}

// RowsTx is a transaction on rows. Either Commit or Rollback is called at its end, once.
type RowsTx interface {
	ordered.Writer
	// Commit makes the changes visible, and durable if the rows are. When it fails, nothing has
	// changed.
	Commit(ctx context.Context) error
	// Rollback forgets the changes.
	Rollback() error
}

// Memory keeps databases in memory. Transactions that write run one after another.
type Memory struct {
	turn chan struct{}
	mu   sync.Mutex
	rows *ordered.Memory // guarded by mu; it is replaced and never changed
}

// NewMemory returns rows without databases.
func NewMemory() *Memory {
	return &Memory{turn: make(chan struct{}, 1), rows: ordered.NewMemory()}
}

// View implements Rows.
func (m *Memory) View(ctx context.Context) (ordered.Reader, func() error, error) {
	return m.clone(), func() error { return nil }, ctx.Err()
}

func (m *Memory) clone() *ordered.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows.Clone()
}

// Begin implements Rows. It waits for the end of another transaction.
func (m *Memory) Begin(ctx context.Context) (RowsTx, error) {
	select {
	case m.turn <- struct{}{}:
		return &memoryTx{m.clone(), m}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another transaction: %w", ctx.Err())
	}
}

type memoryTx struct {
	*ordered.Memory
	of *Memory
}

func (t *memoryTx) Commit(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		t.of.mu.Lock()
		t.of.rows = t.Memory
		t.of.mu.Unlock()
	}
	<-t.of.turn
	return err
}

func (t *memoryTx) Rollback() error {
	<-t.of.turn
	return nil
}

// Snapshot returns rows that can only be read, such as those of an old version of a page.
// Transactions that write fail with ErrReadOnly. They are as safe for concurrent use as r.
func Snapshot(r ordered.Reader) Rows { return snapshot{r} }

type snapshot struct{ r ordered.Reader }

func (s snapshot) View(context.Context) (ordered.Reader, func() error, error) {
	return s.r, func() error { return nil }, nil
}

func (s snapshot) Begin(context.Context) (RowsTx, error) {
	return nil, fmt.Errorf("change a snapshot: %w", base.ErrReadOnly)
}
