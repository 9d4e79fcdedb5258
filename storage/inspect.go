package storage

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// Row is the printed form of a row (docs/format/rows.md): {family}/{part}/{part}, binary parts as
// hexadecimal digits.
type Row struct {
	Key, Value string
}

// RowFamilies are the families that Rows accepts, in the order in which they are printed.
var RowFamilies = []string{
	bucketCommits, bucketObjects, bucketHeads, bucketMerges, bucketConflicts, bucketRefs, bucketUnsynced, bucketTransient, bucketLocal, bucketSynced,
	bucketMetadata, bucketTags, bucketNewTags, bucketCloud, bucketTreeless, bucketShallow,
}

// Rows returns the printed rows of a family, or of all families when family is "", one by one. It
// spells out what page.db keeps in fewer rows, or derives from others. The statuses of tree nodes
// follow from those of their commits. It folds first, so that the rows are those of all durable
// commits. If page.db is rebuilt meanwhile, some rows may come twice. Errors match base.ErrNotFound
// for an unknown family, or are those of reading page.db.
func (s *Store) Rows(ctx context.Context, family string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		known, stopped, errStop := false, false, errors.New("no more rows are wanted")
		for _, f := range RowFamilies {
			if family != "" && f != family {
				continue
			}
			known = true
			var rows []Row
			give := func() error {
				for _, r := range rows {
					if stopped = stopped || !yield(r, nil); stopped {
						return errStop
					}
				}
				rows = rows[:0]
				return nil
			}
			err := s.eachRow(ctx, storedFamily(f), func(tx index.Tx, k, v []byte) error { return printRow(tx, f, k, v, &rows) }, give)
			if _ = give(); err != nil && !stopped {
				yield(Row{}, err)
			}
			if err != nil || stopped {
				return
			}
		}
		if !known {
			yield(Row{}, fmt.Errorf("row family %q: %w", family, base.ErrNotFound))
		}
	}
}

// readyRows makes the index reflect everything durable: by a fold, or, for a page that is open for
// reading after a crash, by an index in memory.
func (s *Store) readyRows(ctx context.Context) error {
	if s.foldable() && s.writable() == nil {
		return s.Fold(ctx)
	}
	if rows, _ := s.over.pending(); rows == 0 {
		return nil
	}
	s.foldTurn.Wait()
	defer s.foldTurn.Give()
	s.indexMu.Lock()
	err := s.rebuild(ctx, s.recovery.IndexRebuilt, s.state.position.Number)
	s.indexMu.Unlock()
	if err != nil {
		return err
	}
	return s.foldAll(ctx)
}

// storedFamily returns the family whose rows are printed as another: local pieces to which nothing
// refers are printed as transient, and those with a place as synced.
func storedFamily(family string) string {
	switch family {
	case bucketTransient:
		return bucketLocal
	case bucketSynced:
		return bucketCloud
	}
	return family
}

// printRow appends the printed rows of one row of page.db.
func printRow(tx index.Tx, family string, k, v []byte, rows *[]Row) error {
	add := func(value string, parts ...string) {
		key := family
		for _, p := range parts {
			key += "/" + p
		}
		*rows = append(*rows, Row{Key: key, Value: value})
	}
	bad := func() error { return badRow(family, hex.EncodeToString(k), "bad row") }
	digest := func(b []byte) (object.Digest, error) {
		d, ok := numberDigest(tx, readNumber(b))
		if !ok {
			return d, badRow(family, hex.EncodeToString(k), "a number that stands for nothing")
		}
		return d, nil
	}
	switch family {
	case bucketCommits:
		c, err := parseCommitRow(k, v)
		if err != nil {
			return err
		}
		add(describeCommit(c), hex.EncodeToString(k))
	case bucketObjects:
		r, ok := parseObjectRow(v)
		if !ok {
			return bad()
		}
		value := fmt.Sprintf("number %d", r.number)
		if r.dead {
			value += ", not held but as a base"
		}
		if r.held || r.dead {
			value += fmt.Sprintf(", segment %08x, offset %d, length %d", r.place.Segment, r.place.Offset, r.place.Length)
		} else {
			value += ", not held"
		}
		if r.kind == recDelta && (r.held || r.dead) {
			d, ok := numberDigest(tx, r.base)
			if !ok {
				return bad()
			}
			value += fmt.Sprintf(", delta %d against %s", r.depth, d)
		}
		add(value, hex.EncodeToString(k))
	case bucketHeads, bucketUnsynced:
		if len(v) != 8 {
			return bad()
		}
		add(fmt.Sprint(binary.BigEndian.Uint64(v)), hex.EncodeToString(k))
	case bucketMerges:
		if len(k) != 96 {
			return bad()
		}
		add("", hex.EncodeToString(k[:32]), hex.EncodeToString(k[32:64]), hex.EncodeToString(k[64:]))
	case bucketConflicts:
		root, err := parseConflictRow(k, v)
		if err != nil {
			return err
		}
		add(root.String(), hex.EncodeToString(k))
	case bucketTransient, bucketLocal, bucketSynced:
		d, err := keyDigest(tx, family, k)
		if err != nil {
			return err
		}
		id := object.Identifier{Digest: d}
		if family == bucketSynced {
			p, err := parseCloudRow(&d, v)
			if err != nil {
				return err
			}
			id.KeyIndex = uint64(p.KeyIndex)
		} else if referred(tx, readNumber(k)) != (family == bucketLocal) {
			return nil
		}
		add("", id.String())
	case bucketRefs:
		return refRows(k, v, digest, add)
	case bucketTags:
		id, err := parseTagRow(string(k), v)
		if err != nil {
			return err
		}
		add(id.String(), string(k))
	case bucketShallow:
		if len(k) != 2*commit.IDSize {
			return bad()
		}
		add("", hex.EncodeToString(k[:commit.IDSize]), hex.EncodeToString(k[commit.IDSize:]))
	default:
		return syncRow(tx, family, k, v, add)
	}
	return nil
}

// refRows appends the printed rows of references, without those to bases.
func refRows(k, v []byte, digest func([]byte) (object.Digest, error), add func(string, ...string)) error {
	r, err := parseRefRow(k, v)
	if err != nil {
		return err
	}
	dest, err := digest(k)
	if err != nil {
		return err
	}
	if r.typ == refCommit {
		add("", dest.String(), "commit", hex.EncodeToString(r.commit))
	}
	if r.typ == refEager || r.typ == refLazy {
		for _, n := range r.sources {
			d, err := digest(appendNumber(nil, n))
			if err != nil {
				return err
			}
			add("", dest.String(), "object", map[byte]string{refEager: "eager", refLazy: "lazy"}[r.typ], d.String())
		}
	}
	return nil
}

func describeCommit(c *commit.Commit) string {
	s := fmt.Sprintf("timestamp %d, generation %d, root %s, parents", c.Timestamp, c.Generation, c.Root)
	for _, p := range c.Parents {
		s += " " + p.String()
	}
	return s
}
