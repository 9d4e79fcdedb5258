package idb

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Rows stores databases. Package indexeddb/pages implements it for pages; Memory and Snapshot are
// other implementations. Its methods may be used concurrently.
type Rows interface {
	// View returns a reader for the current rows. The reader is valid until the caller calls end,
	// exactly once.
	View(ctx context.Context) (r ordered.Reader, end func() error, err error)
	// Begin starts a transaction. It may wait for the end of others. Instead, Commit may fail with
	// base.ErrConflict.
	Begin(ctx context.Context) (RowsTx, error)
}

// RowsTx is a transaction on rows. The caller ends it with one call of Commit or Rollback.
type RowsTx interface {
	ordered.Writer
	// Commit makes the changes visible, and durable if the rows are. A failed Commit changes
	// nothing.
	Commit(ctx context.Context) error
	// Rollback discards the changes.
	Rollback() error
}

// Memory stores databases in memory. Writing transactions run one after another.
type Memory struct {
	turn chan struct{}
	mu   sync.Mutex
	rows *ordered.Memory // guarded by mu; replaced, never changed
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

// Begin implements Rows. It waits for the end of the previous transaction.
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

// Snapshot returns read-only rows, such as those of an old version of a page. Writing transactions
// fail with ErrReadOnly. The result is as safe for concurrent use as r.
func Snapshot(r ordered.Reader) Rows { return snapshot{r} }

type snapshot struct{ r ordered.Reader }

func (s snapshot) View(context.Context) (ordered.Reader, func() error, error) {
	return s.r, func() error { return nil }, nil
}

func (s snapshot) Begin(context.Context) (RowsTx, error) {
	return nil, fmt.Errorf("change a snapshot: %w", base.ErrReadOnly)
}
