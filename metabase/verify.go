package metabase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/internal/base"
)

// Issue describes a wrong row.
type Issue struct {
	// Bucket and Key name the row. They contain no values of attributes.
	Bucket, Key string
	// Problem describes what is wrong with the row.
	Problem string
	// Derived reports that the row follows from other rows, so that Repair can mend it.
	Derived bool

	fix func(ctx context.Context, t *Tx) error
}

// String returns the issue on one line.
func (i Issue) String() string { return i.Bucket + " " + i.Key + ": " + i.Problem }

// errStop ends a verification after the loop has ended.
var errStop = errors.New("stop")

// verifier verifies a metabase.
type verifier struct {
	*View
	yield func(Issue, error) bool
	owned map[Address]map[string][]byte // cache of the rows that follow from an object
}

// maxOwned bounds the size of verifier.owned.
const maxOwned = 512

// Verify yields an issue for each wrong row: objects that cannot be decoded or are in the wrong
// place, missing derived rows, rows that follow from no object, wrong counters. Empty buckets are
// allowed. The loop must not write.
func (v *View) Verify(ctx context.Context) iter.Seq2[Issue, error] {
	return func(yield func(Issue, error) bool) {
		w := &verifier{View: v, yield: yield, owned: map[Address]map[string][]byte{}}
		for _, step := range []func(context.Context) error{
			w.names, w.marks, w.locks, w.objects, w.parents, w.derivedRows, w.counters,
		} {
			if err := step(ctx); err != nil {
				if !errors.Is(err, errStop) {
					yield(Issue{}, fmt.Errorf("verify: %w", err))
				}
				return
			}
		}
	}
}

// repairBatch is how many issues Repair mends between two verifications.
const repairBatch = 10000

// maxRepairRounds bounds the number of verifications of one Repair.
const maxRepairRounds = 1000

// Repair corrects all rows that follow from other rows and returns how many it changed. All other
// rows stay as they are.
func (t *Tx) Repair(ctx context.Context) (int, error) {
	mended := 0
	for range maxRepairRounds {
		var batch []Issue
		for issue, err := range t.Verify(ctx) {
			if err != nil {
				return mended, err
			}
			if issue.fix != nil {
				batch = append(batch, issue)
			}
			if len(batch) == repairBatch {
				break
			}
		}
		if len(batch) == 0 {
			return mended, nil
		}
		for _, issue := range batch {
			if err := issue.fix(ctx, t); err != nil {
				return mended, fmt.Errorf("repair %s %s: %w", issue.Bucket, issue.Key, err)
			}
		}
		mended += len(batch)
	}
	return mended, fmt.Errorf("repair: after %d changes rows are still wrong: %w", mended, base.ErrCorrupt)
}

func (w *verifier) report(p place, key []byte, fix func(context.Context, *Tx) error, problem string, args ...any) error {
	i := Issue{Bucket: p.String(), Key: rowName(key), Problem: fmt.Sprintf(problem, args...), Derived: fix != nil, fix: fix}
	if !w.yield(i, nil) {
		return errStop
	}
	return nil
}

// names verifies that each bucket has a known name.
func (w *verifier) names(ctx context.Context) error {
	all, err := collect(w.tree.names(ctx, nil, nil))
	if err != nil {
		return err
	}
	for _, name := range all {
		p := place{bucket: name}
		_, ofContainer := p.container()
		if isStatic := len(name) == 1 && bytes.Contains(kindBytes(staticKinds), name); isStatic || ofContainer && (len(name) == 33 || p.kind() == kindAttribute) {
			continue
		}
		if err := w.report(place{}, name, nil, "unknown bucket"); err != nil {
			return err
		}
	}
	return nil
}

func kindBytes(kinds []kind) (b []byte) {
	for _, k := range kinds {
		b = append(b, byte(k))
	}
	return b
}

// marks verifies the buckets that are keyed by addresses or containers.
func (w *verifier) marks(ctx context.Context) error {
	for k, size := range map[kind]int{kindGraves: 64, kindGarbage: 64, kindToMove: 64, kindGarbageContainers: 32} {
		for row, err := range w.tree.rows(ctx, in(k), span{}) {
			if err != nil {
				return err
			}
			if len(row.Key) != size {
				if err := w.report(in(k), row.Key, nil, "key has %d bytes, want %d", len(row.Key), size); err != nil {
					return err
				}
			}
			if _, ok := decodeGrave(row.Value); k == kindGraves && (!ok || w.version >= graveVersion && len(row.Value) == 64) {
				if err := w.report(in(k), row.Key, nil, "grave has %d bytes, want 72", len(row.Value)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *verifier) locks(ctx context.Context) error {
	containers, err := collect(w.tree.names(ctx, in(kindLocked).bucket, nil))
	if err != nil {
		return err
	}
	for _, name := range containers {
		p := in(kindLocked).at(name)
		if _, ok := p.container(); !ok {
			if err := w.report(in(kindLocked), name, nil, "bucket of no container"); err != nil {
				return err
			}
		}
		for row, err := range w.tree.rows(ctx, p, span{}) {
			if err != nil {
				return err
			}
			items, err := decodeList(row.Value)
			problem := ""
			switch {
			case err != nil:
				problem = "no list"
			case len(items) == 0:
				problem = "empty list of locks"
			case len(row.Key) != 32:
				problem = "key is no object"
			}
			seen := map[string]bool{}
			for _, item := range items {
				if len(item) != 32 || seen[string(item)] {
					problem = "a lock that is no object, or twice"
				}
				seen[string(item)] = true
			}
			if problem != "" {
				if err := w.report(p, row.Key, nil, "%s", problem); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// objects verifies each object and the presence of the rows that follow from it.
func (w *verifier) objects(ctx context.Context) error {
	return w.eachBucket(ctx, objectKinds, nil, func(p place, container ID) error {
		for row, err := range w.tree.rows(ctx, p, span{}) {
			if err != nil {
				return err
			}
			id, ok := idOf(row.Key)
			if !ok {
				if err := w.report(p, row.Key, nil, "key is no object"); err != nil {
					return err
				}
				continue
			}
			o, err := w.decode(bytes.Clone(row.Value), Address{container, id}, p.kind())
			if err != nil {
				if err := w.report(p, row.Key, nil, "%v", err); err != nil {
					return err
				}
				continue
			}
			if err := w.missing(ctx, o, true); err != nil {
				return err
			}
		}
		return nil
	})
}

// missing reports rows that should follow from an object and are absent or wrong.
func (w *verifier) missing(ctx context.Context, o *Object, physical bool) error {
	for d := range w.expected(o, physical) {
		if d.how == asRow {
			same, err := w.sameBytes(ctx, d.place, d.key, d.value)
			if err != nil {
				return err
			}
			if same {
				continue
			}
			err = w.report(d.place, d.key, func(ctx context.Context, t *Tx) error {
				return t.tree.put(ctx, d.place, d.key, d.value)
			}, "row of object %s is missing or wrong", o.ID)
			if err != nil {
				return err
			}
			continue
		}
		items, err := w.list(ctx, d.place, d.key)
		if err == nil && len(addToList(items, d.value)) == len(items) {
			continue
		}
		err = w.report(d.place, d.key, func(ctx context.Context, t *Tx) error {
			return t.mendList(ctx, d.place, d.key, func(list [][]byte) [][]byte { return addToList(list, d.value) })
		}, "object %s is missing in the list", o.ID)
		if err != nil {
			return err
		}
	}
	return nil
}

// mendList changes a list that may be unreadable.
func (t *Tx) mendList(ctx context.Context, p place, key []byte, change func([][]byte) [][]byte) error {
	items, err := t.list(ctx, p, key)
	if err != nil && !errors.Is(err, base.ErrCorrupt) {
		return err
	}
	if items = change(items); len(items) == 0 {
		return t.tree.delete(ctx, p, key)
	}
	return t.putList(ctx, p, key, items)
}

// expected yields the rows that follow from an object in this version. An object beyond the limits
// of Put has no metadata rows.
func (w *verifier) expected(o *Object, physical bool) iter.Seq[derived] {
	return func(yield func(derived) bool) {
		metadata := w.version >= newestVersion && o.check() == nil
		for d := range o.rows(physical) {
			if (d.place.kind() != kindMetadata || metadata) && !yield(d) {
				return
			}
		}
	}
}

// parents verifies the rows that follow from the parts of objects.
func (w *verifier) parents(ctx context.Context) error {
	return w.eachBucket(ctx, []kind{kindParent}, nil, func(p place, container ID) error {
		for row, err := range w.tree.rows(ctx, p, span{keysOnly: true}) {
			if err != nil {
				return err
			}
			id, ok := idOf(row.Key)
			if !ok {
				continue // derivedRows reports this key
			}
			a := Address{container, id}
			stored, _, err := w.stored(ctx, a)
			if err != nil || stored != nil {
				continue // either objects has reported it, or the object is stored whole
			}
			o, info, err := w.virtual(ctx, a)
			if err != nil || o == nil {
				continue // objects has reported the part
			}
			if err := w.missing(ctx, o, false); err != nil {
				return err
			}
			root := of(kindRoot, container)
			if same, err := w.sameBytes(ctx, root, id[:], info.Marshal()); err != nil || same {
				if err != nil {
					return err
				}
				continue
			}
			err = w.report(root, id[:], func(ctx context.Context, t *Tx) error {
				return t.tree.put(ctx, root, id[:], info.Marshal())
			}, "split information is missing or wrong")
			if err != nil {
				return err
			}
		}
		return nil
	})
}
