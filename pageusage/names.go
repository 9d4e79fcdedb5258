package pageusage

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/storage/index"
)

// Ledger is a ledger and the name of its directory.
type Ledger struct {
	Dir, Name string
}

// NamedPage is a page and its human name.
type NamedPage struct {
	Page Page
	Name string
}

func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("set name: empty %s: %w", what, base.ErrInvalid)
	case len(name) > limits.MaxLedgerNameBytes:
		return fmt.Errorf("set name: %s of %d bytes: %w", what, len(name), base.ErrTooLarge)
	}
	return nil
}

// SetLedgerName records that the directory dir is that of the ledger name. It is durable when it
// returns, and costs no write when it is so already. dir and name are 1 to
// limits.MaxLedgerNameBytes bytes long. Errors: base.ErrInvalid, base.ErrTooLarge,
// base.ErrReadOnly, those of Flush.
func (d *DB) SetLedgerName(dir, name string) error {
	if err := checkName("directory", dir); err != nil {
		return err
	}
	return d.setName(ledgersBucket, []byte(dir), name)
}

// SetPageName records the human name of p, as SetLedgerName does.
func (d *DB) SetPageName(p Page, name string) error {
	if err := p.check(); err != nil {
		return err
	}
	return d.setName(pagesBucket, p.key(), name)
}

func (d *DB) setName(bucket string, k []byte, name string) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	if d.readOnly {
		return fmt.Errorf("set name: %w", base.ErrReadOnly)
	}
	old, err := d.name(bucket, k)
	if err != nil || old == name {
		return err
	}
	return d.update("set name", func(tx index.Tx) error {
		b, err := tx.CreateBucket(bucket)
		if err != nil {
			return err
		}
		return b.Put(k, encodeName(k, name))
	})
}

// name returns the name in a row, empty when there is none.
func (d *DB) name(bucket string, k []byte) (name string, err error) {
	if err := d.usable(); err != nil {
		return "", err
	}
	err = d.db.View(func(tx index.Tx) error {
		b := tx.Bucket(bucket)
		if b == nil {
			return nil
		}
		if v := b.Get(k); v != nil {
			name, err = decodeName(bucket, k, v)
			return err
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read name: %w", err)
	}
	return name, nil
}

// LedgerName returns the name of the ledger in the directory dir. Errors: base.ErrNotFound,
// base.ErrClosed, *base.CorruptError.
func (d *DB) LedgerName(dir string) (string, error) { return d.found(ledgersBucket, []byte(dir)) }

// PageName returns the human name of p. Errors: those of LedgerName.
func (d *DB) PageName(p Page) (string, error) { return d.found(pagesBucket, p.key()) }

func (d *DB) found(bucket string, k []byte) (string, error) {
	if len(k) == 0 {
		return "", fmt.Errorf("read name: %w", base.ErrNotFound)
	}
	name, err := d.name(bucket, k)
	if err == nil && name == "" {
		return "", fmt.Errorf("read name: %w", base.ErrNotFound)
	}
	return name, err
}

// ForgetLedger forgets the name of the ledger in dir and the names of all its pages, for a ledger
// that was deleted. Usage stays until Remove or Reconcile. That there is none is no error. Errors:
// base.ErrReadOnly, those of Flush.
func (d *DB) ForgetLedger(dir string) error {
	name, err := d.name(ledgersBucket, []byte(dir))
	if err != nil || name == "" {
		return err
	}
	return d.update("forget ledger", func(tx index.Tx) error {
		if b := tx.Bucket(pagesBucket); b != nil {
			c := b.Cursor()
			prefix := []byte(name)
			for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
				if len(k) != len(prefix)+16 {
					continue // of a ledger whose name begins so
				}
				if err := b.Delete(k); err != nil {
					return err
				}
			}
		}
		return deleteRow(tx, ledgersBucket, []byte(dir))
	})
}

// Ledgers yields every named ledger, sorted by directory. At most one error comes, last:
// base.ErrClosed, *base.CorruptError.
func (d *DB) Ledgers() iter.Seq2[Ledger, error] {
	return func(yield func(Ledger, error) bool) {
		for kv, err := range d.rows(ledgersBucket, nil) {
			l := Ledger{Dir: string(kv[0])}
			if err == nil {
				l.Name, err = decodeName(ledgersBucket, kv[0], kv[1])
			}
			if err != nil {
				yield(Ledger{}, err)
				return
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// PageNames yields every named page of a ledger, sorted by id, whether a copy is held here or not;
// of all ledgers when ledger is empty, sorted by ledger name followed by id. Errors: those of
// Ledgers.
func (d *DB) PageNames(ledger string) iter.Seq2[NamedPage, error] {
	return func(yield func(NamedPage, error) bool) {
		for kv, err := range d.rows(pagesBucket, []byte(ledger)) {
			var n NamedPage
			if err == nil {
				n.Page, err = decodePage(pagesBucket, kv[0])
			}
			if err == nil {
				n.Name, err = decodeName(pagesBucket, kv[0], kv[1])
			}
			if err != nil {
				yield(NamedPage{}, err)
				return
			}
			if ledger != "" && n.Page.Ledger != ledger {
				continue // its name begins so
			}
			if !yield(n, nil) {
				return
			}
		}
	}
}
