package storage

import (
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// ObjectRows returns the digests that have a row: true for those that are held, false for others;
// and those that are kept as bases only.
func ObjectRows(db index.DB) (rows map[object.Digest]bool, dead map[object.Digest]bool, err error) {
	rows, dead = map[object.Digest]bool{}, map[object.Digest]bool{}
	err = db.View(func(tx index.Tx) error {
		c := tx.Bucket(bucketObjects).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			d, _ := digestOf(k)
			r, ok := parseObjectRow(v)
			if !ok {
				return badRow(bucketObjects, d.String(), "bad value")
			}
			rows[d] = r.held
			if r.dead {
				dead[d] = true
			}
		}
		return nil
	})
	return rows, dead, err
}
