package storage

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// A checkpoint has the metadata of the page, the rows of checkpointFamilies, as of the moment when
// the index reflected all batches up to a number. With a checkpoint the index can be rebuilt
// without the records up to that number, except those that store pieces and nodes. So compaction
// need not keep them.
//
//	kind      payload
//	rows      number of the family in checkpointFamilies, 1 byte; rows, 1 or more: length of the
//	          key uvarint, key, length of the value uvarint, value. A piece number as key is
//	          written as its digest.
//	complete  number uvarint: the checkpoint is as of this batch; number of its first batch
//	          uvarint. The checkpoint ends with this record.
const (
	recRows     = 21
	recComplete = 22
)

// checkpointFamilies are the families of a checkpoint. The order is part of the format. All other
// rows derive from these and from pieces and nodes.
var checkpointFamilies = []string{
	bucketCommits, bucketHeads, bucketMerges, bucketConflicts, bucketUnsynced, bucketTreeless, bucketShallow, bucketTags, bucketNewTags, bucketMetadata,
	bucketCloud,
}

// The approximate lengths of a record of rows, and of a batch of such records.
const (
	checkpointRecordBytes = 64 << 10
	checkpointBatchBytes  = 1 << 20
)

// checkpoint locates a checkpoint in the log: its batches have numbers from first to last, and it
// is as of the batch upTo. All are 0 when there is none.
type checkpoint struct{ upTo, first, last uint64 }

// eachCheckpointRow calls fn with the rows of a checkpoint.
func eachCheckpointRow(tx index.Tx, fn func(family int, k, v []byte) error) error {
	for i, family := range checkpointFamilies {
		for k, v := range rowsOf(tx, family) {
			if family == bucketCloud { // its keys are piece numbers
				d, err := keyDigest(tx, family, k)
				if err != nil {
					return err
				}
				k = d[:]
			}
			if err := fn(i, k, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkpointSize returns about how many bytes a checkpoint takes.
func checkpointSize(tx index.Tx) (bytes int64, err error) {
	err = eachCheckpointRow(tx, func(_ int, k, v []byte) error {
		bytes += int64(2 + len(k) + len(v))
		return nil
	})
	return bytes, err
}

// writeCheckpoint writes a checkpoint of the rows of an index that reflects all batches up to a
// number. add appends a batch of records and returns its number.
func writeCheckpoint(tx index.Tx, upTo uint64, add func(b *segment.Batch, ops []op) (uint64, error)) error {
	first := uint64(0)
	b, rows, family := segment.NewBatch(), []byte(nil), -1
	flush := func(most int) error {
		if len(rows) > 0 {
			b.Add(recRows, []byte{byte(family)}, rows)
			rows = rows[:0]
		}
		if b.Bytes() <= most {
			return nil
		}
		number, err := add(b, nil)
		if first == 0 {
			first = number
		}
		b = segment.NewBatch()
		return err
	}
	err := eachCheckpointRow(tx, func(f int, k, v []byte) error {
		if f != family || len(rows) > checkpointRecordBytes {
			if err := flush(checkpointBatchBytes); err != nil {
				return err
			}
			family = f
		}
		rows = append(binary.AppendUvarint(rows, uint64(len(k))), k...)
		rows = append(binary.AppendUvarint(rows, uint64(len(v))), v...)
		return nil
	})
	if err == nil {
		err = flush(0)
	}
	if err != nil {
		return err
	}
	o := op{kind: recComplete, sync: &syncOp{checkpoint: checkpoint{upTo: upTo, first: first}}}
	b.Add(o.kind, o.appendHeader(nil), nil)
	_, err = add(b, []op{o})
	return err
}

// eachRowOf calls fn with the rows of a record, and reports whether it is well formed.
func eachRowOf(p []byte, fn func(family string, k, v []byte) error) (ok bool, err error) {
	if len(p) < 2 || int(p[0]) >= len(checkpointFamilies) {
		return false, nil
	}
	family := checkpointFamilies[p[0]]
	for c := (coder{p: p[1:], reading: true}); len(c.p) > 0; {
		k, v := c.cut(), c.cut()
		if c.bad || family == bucketCloud && len(k) != object.DigestSize {
			return false, nil
		}
		if fn != nil {
			if err := fn(family, k, v); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// restoring puts rows of a checkpoint into an index that is being rebuilt.
type restoring struct {
	tx index.Tx
	st *state
}

func (r restoring) put(family string, k, v []byte) error {
	bad := func() error { return badRow(family, hex.EncodeToString(k), "a bad row in a checkpoint") }
	k, v = slices.Clone(k), slices.Clone(v)
	switch family {
	case bucketCloud:
		d, ok := digestOf(k)
		if !ok {
			return bad()
		}
		number, err := r.number(&d)
		if err != nil {
			return err
		}
		k = appendNumber(nil, number)
		if _, err := parseCloudRow(&d, v); err != nil {
			return err
		}
		if err := r.tx.Bucket(bucketLocal).Delete(k); err != nil {
			return err
		}
	case bucketCommits:
		c, err := parseCommitRow(k, v)
		if err != nil {
			return err
		}
		if err := r.refer(&c.Root, c.ID); err != nil {
			return err
		}
	case bucketConflicts:
		root, err := parseConflictRow(k, v)
		if err != nil {
			return err
		}
		if err := r.refer(&root, commit.ID(k)); err != nil {
			return err
		}
	case bucketHeads:
		if len(k) != commit.IDSize {
			return bad()
		}
		if !hasKey(r.tx.Bucket(bucketHeads), k) {
			r.st.addHead(commit.ID(k))
		}
	}
	return r.tx.Bucket(family).Put(k, v)
}

// refer records that a commit refers to a root.
func (r restoring) refer(root *object.Digest, id commit.ID) error {
	n, err := r.number(root)
	if err != nil {
		return err
	}
	return putCommitRef(r.tx, n, id)
}

// number returns the number of a piece, and assigns one at its first mention.
func (r restoring) number(d *object.Digest) (uint64, error) {
	row, ok, err := readObjectRow(r.tx, d)
	if err != nil || ok {
		return row.number, err
	}
	n := r.st.next
	if n > maxNumber {
		return 0, fmt.Errorf("number piece %s: the page has too many pieces", d.Short())
	}
	r.st.next++
	if err := r.tx.Bucket(bucketNumbers).Put(appendNumber(nil, n), d[:]); err != nil {
		return 0, err
	}
	return n, r.tx.Bucket(bucketObjects).Put(d[:], (&objectRow{number: n}).append(nil))
}
