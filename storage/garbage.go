package storage

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/storage/index"
)

// Garbage counts the held pieces and nodes that no commit reaches and no open journal has stored,
// and their size in the segments: a Collector will delete them. It folds first, and reads all rows
// of references, in transactions of some thousands, once for each level of garbage. It may count
// pieces that are deleted meanwhile. Errors match base.ErrCorrupt or base.ErrClosed, or are those
// of the disk or of ctx.
func (s *Store) Garbage(ctx context.Context) (sum SpaceCount, err error) {
	var gone bitset // numbers of the counted pieces
	err = s.readyRows(ctx)
	for before := -1; err == nil && before < sum.Count; {
		before = sum.Count
		for from, end := uint64(0), uint64(1); err == nil && from < end; {
			if err = ctx.Err(); err != nil {
				break
			}
			err = s.viewOnce(func(tx index.Tx) error {
				w := s.wantedNow()
				st, err := parseState(tx.Bucket(bucketState).Get(stateKey))
				if err != nil {
					return err
				}
				k := newJudge(tx, &w, true)
				k.gone, end = gone, st.next
				if from, err = k.walk(from, end); err != nil {
					return err
				}
				for i := range k.garbage {
					if row := &k.garbage[i].row; row.held && !gone.set(row.number) {
						sum.add(int(row.place.Length))
					}
				}
				return nil
			})
		}
	}
	if err != nil {
		return SpaceCount{}, fmt.Errorf("count garbage: %w", err)
	}
	return sum, nil
}
