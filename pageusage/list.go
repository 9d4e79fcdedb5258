package pageusage

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/storage/index"
)

const (
	// stepRows is how many rows an iterator reads in one transaction.
	stepRows = 256
	// heapPages bounds the memory of LeastRecent.
	heapPages = 1024
)

// rows yields copies of the rows of a bucket in order. It holds no transaction while the loop body
// runs.
func (d *DB) rows(bucket string, prefix []byte) iter.Seq2[[2][]byte, error] {
	return func(yield func([2][]byte, error) bool) {
		if err := d.usable(); err != nil {
			yield([2][]byte{}, err)
			return
		}
		from := bytes.Clone(prefix)
		for {
			var step [][2][]byte
			err := d.db.View(func(tx index.Tx) error {
				b := tx.Bucket(bucket)
				if b == nil {
					return nil
				}
				c := b.Cursor()
				k, v := c.Seek(from)
				for ; k != nil && bytes.HasPrefix(k, prefix) && len(step) < stepRows; k, v = c.Next() {
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
		for kv, err := range d.rows(openedBucket, nil) {
			var u Usage
			if err == nil {
				u, err = decodeUsage(kv[0], kv[1])
			}
			if err == nil {
				u.SizeBytes, err = d.size(u.Page)
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

// LeastRecent yields the closed pages, the one that was closed longest ago first; of pages closed
// at the same time, in the order of List. Its memory does not grow with the number of pages. A page
// that is marked meanwhile may come in its new place, its old one, or both: check before evicting.
// At most one error comes, last: those of List.
func (d *DB) LeastRecent() iter.Seq2[Usage, error] {
	return func(yield func(Usage, error) bool) {
		var after Usage
		for {
			batch, err := d.oldest(after)
			if err != nil {
				yield(Usage{}, err)
				return
			}
			for _, u := range batch {
				if !yield(u, nil) {
					return
				}
			}
			if len(batch) < heapPages {
				return
			}
			after = batch[len(batch)-1]
		}
	}
}

// older is the order of LeastRecent.
func older(a, b Usage) int {
	return cmp.Or(a.Closed.Compare(b.Closed), bytes.Compare(a.Page.key(), b.Page.key()))
}

// newestFirst is a heap of the oldest pages seen, with the newest of them on top.
type newestFirst []Usage

func (h newestFirst) Len() int           { return len(h) }
func (h newestFirst) Less(i, j int) bool { return older(h[i], h[j]) > 0 }
func (h newestFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for package heap.
func (h *newestFirst) Push(x any) { *h = append(*h, x.(Usage)) }

// Pop is for package heap.
func (h *newestFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// oldest returns the oldest closed pages after one, sorted, at most heapPages.
func (d *DB) oldest(after Usage) ([]Usage, error) {
	var h newestFirst
	for u, err := range d.List() {
		if err != nil {
			return nil, err
		}
		if u.Open || after.Page.Ledger != "" && older(u, after) <= 0 {
			continue
		}
		switch {
		case len(h) < heapPages:
			heap.Push(&h, u)
		case older(u, h[0]) < 0:
			h[0] = u
			heap.Fix(&h, 0)
		}
	}
	sorted := make([]Usage, len(h))
	for i := len(h) - 1; i >= 0; i-- {
		sorted[i] = heap.Pop(&h).(Usage)
	}
	return sorted, nil
}
