package pageusage

import (
	"fmt"

	"github.com/ledgerd/ledger/storage/index"
)

// List writes what is known of each page, sorted, as ledger/number@time.
func (d *DB) List() (all []string, err error) {
	if err := d.Flush(); err != nil {
		return nil, err
	}
	err = d.db.View(func(tx index.Tx) error {
		if tx.Bucket(formatBucket) == nil {
			return nil
		}
		return scan(tx, func(p Page, r row) {
			switch s := fmt.Sprintf("%s/%d@", p.Ledger, p.ID[15]); r.closed {
			case 0:
				all = append(all, s+"open")
			case never:
			default:
				all = append(all, fmt.Sprint(s, r.closed))
			}
		})
	})
	return all, err
}
