package pageusage

import (
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/storage/index"
)

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("set name: empty: %w", base.ErrInvalid)
	case len(name) > limits.MaxLedgerNameBytes:
		return fmt.Errorf("set name: %d bytes: %w", len(name), base.ErrTooLarge)
	}
	return nil
}

// SetPageName records the human name of p, which is 1 to limits.MaxLedgerNameBytes bytes long. It
// is durable when it returns, and costs no write when it is so already. Errors: base.ErrInvalid,
// base.ErrTooLarge, base.ErrReadOnly, those of Flush.
func (d *DB) SetPageName(p Page, name string) error {
	if err := check(p); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	if d.readOnly {
		return fmt.Errorf("set name: %w", base.ErrReadOnly)
	}
	old, err := d.name(p)
	if err != nil || old == name {
		return err
	}
	return d.update("set name", func(tx index.Tx) error {
		b, err := tx.CreateBucket(pagesBucket)
		if err != nil {
			return err
		}
		return b.Put(rowKey(p), encodeName(rowKey(p), name))
	})
}

// name returns the human name of p, "" when there is none.
func (d *DB) name(p Page) (name string, err error) {
	if err := d.usable(); err != nil {
		return "", err
	}
	err = d.db.View(func(tx index.Tx) error {
		b := tx.Bucket(pagesBucket)
		if b == nil {
			return nil
		}
		if v := b.Get(rowKey(p)); v != nil {
			name, err = decodeName(rowKey(p), v)
			return err
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read name: %w", err)
	}
	return name, nil
}

// PageName returns the human name of p. Errors: base.ErrNotFound, base.ErrClosed,
// *base.CorruptError.
func (d *DB) PageName(p Page) (string, error) {
	name, err := d.name(p)
	if err == nil && name == "" {
		return "", fmt.Errorf("read name: %w", base.ErrNotFound)
	}
	return name, err
}
