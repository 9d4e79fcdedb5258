package pageusage

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/storage/index"
)

// stepRows is how many rows an iterator reads in one transaction.
const stepRows = 256

// rows yields copies of the rows of a bucket in order. It holds no transaction while the loop body
// runs.
func (d *DB) rows(bucket string) iter.Seq2[[2][]byte, error] {
	return func(yield func([2][]byte, error) bool) {
		if err := d.usable(); err != nil {
			yield([2][]byte{}, err)
			return
		}
		var from []byte
		for {
			var step [][2][]byte
			err := d.db.View(func(tx index.Tx) error {
				b := tx.Bucket(bucket)
				if b == nil {
					return nil
				}
				c := b.Cursor()
				k, v := c.Seek(from)
				for ; k != nil && len(step) < stepRows; k, v = c.Next() {
					step = append(step, [2][]byte{bytes.Clone(k), bytes.Clone(v)})
				}
				return nil
			})
			if err != nil {
				yield([2][]byte{}, fmt.Errorf("read page usage: %w", err))
				return
			}
			for _, kv := range step {
				if !yield(kv, nil) {
					return
				}
			}
			if len(step) < stepRows {
				return
			}
			from = append(bytes.Clone(step[len(step)-1][0]), 0)
		}
	}
}

func (d *DB) usable() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed("read page usage")
	}
	return nil
}

// List yields the usage of every page, sorted by ledger name followed by page id. It writes what is
// pending first. At most one error comes, last: those of Flush.
func (d *DB) List() iter.Seq2[Usage, error] {
	return func(yield func(Usage, error) bool) {
		if err := d.Flush(); err != nil {
			yield(Usage{}, err)
			return
		}
		for kv, err := range d.rows(openedBucket) {
			var u Usage
			if err == nil {
				u, err = decodeUsage(kv[0], kv[1])
			}
			if err == nil {
				u.SizeBytes, err = d.Size(u.Page)
			}
			if err != nil {
				yield(Usage{}, err)
				return
			}
			if !yield(u, nil) {
				return
			}
		}
	}
}
