package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// What was given up stands in rows, of which only the last is written again when more is. A row is
// givenUpVersion, its number (4 bytes, big-endian) and the first givenUpBytes of the id of each
// commit, the last one last. Row n is of type storage.MetadataGivenUp and the digit n%givenUpRows:
// the oldest are forgotten. Of those that come again after that, the last are still known as a
// rule, and they stand for what they are built on.
const (
	givenUpVersion = 1
	givenUpHead    = 5
	givenUpBytes   = 16
	givenUpPerRow  = 4096
	givenUpRows    = 16
)

type givenUpID [givenUpBytes]byte

func shortID(id commit.ID) givenUpID { return givenUpID(id[:givenUpBytes]) }

// givenUpType returns the type of the row of a number.
func givenUpType(number uint32) string {
	return storage.MetadataGivenUp + strconv.FormatUint(uint64(number%givenUpRows), givenUpRows)
}

// NoteGivenUp makes durable that commits are given up here, before they are: from then on they are
// taken for heads no more, whoever sends them again. Those here stay known for what they are until
// they are pruned. ids are those of gc.Prune, in their order. Errors: those of the disk and of ctx,
// base.ErrCorrupt.
func (p *Page) NoteGivenUp(ctx context.Context, ids []commit.ID) error {
	last, err := p.readGivenUp(ctx)
	if err != nil {
		return err
	}
	rows := map[string][]byte{}
	for _, id := range slices.Backward(ids) { // the newest last
		if _, ok := p.givenUp[shortID(id)]; ok {
			continue
		}
		number := binary.BigEndian.Uint32(last[1:])
		if len(last) >= givenUpHead+givenUpPerRow*givenUpBytes {
			number++
			last = binary.BigEndian.AppendUint32([]byte{givenUpVersion}, number)
		}
		last = append(last, id[:givenUpBytes]...)
		rows[givenUpType(number)] = last
	}
	if len(rows) == 0 {
		return nil
	}
	p.givenUp = nil // it is read anew
	var b storage.SyncBatch
	for typ, row := range rows {
		b.Metadata = append(b.Metadata, storage.Metadata{Type: typ, Value: row})
	}
	pending, err := p.o.Store.SubmitSync(ctx, nil, &b)
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		return fmt.Errorf("note what is given up: %w", err)
	}
	return nil
}

// readGivenUp reads what was given up here into the page, and returns the last row.
func (p *Page) readGivenUp(ctx context.Context) (last []byte, err error) {
	last = []byte{givenUpVersion, 0, 0, 0, 0}
	given := map[givenUpID]struct{}{}
	for n := range uint32(givenUpRows) {
		typ := givenUpType(n)
		row, err := p.o.Store.Metadata(ctx, typ)
		if err != nil {
			return nil, fmt.Errorf("read what was given up: %w", err)
		}
		if row == nil {
			continue
		}
		if len(row) < givenUpHead || row[0] != givenUpVersion || (len(row)-givenUpHead)%givenUpBytes != 0 || binary.BigEndian.Uint32(row[1:])%givenUpRows != n {
			return nil, &base.CorruptError{Where: "page.db", Key: "sync_metadata/" + typ, Want: "1, a number and parts of ids", Got: fmt.Sprintf("%d bytes", len(row))}
		}
		for part := range slices.Chunk(row[givenUpHead:], givenUpBytes) {
			given[givenUpID(part)] = struct{}{}
		}
		if bytes.Compare(row[1:givenUpHead], last[1:givenUpHead]) >= 0 {
			last = row
		}
	}
	p.givenUp = given
	return last, nil
}

// wasGivenUp reports whether a commit that is not here was given up here.
func (p *Page) wasGivenUp(ctx context.Context, id commit.ID) (bool, error) {
	if p.givenUp == nil {
		if _, err := p.readGivenUp(ctx); err != nil {
			return false, err
		}
	}
	_, ok := p.givenUp[shortID(id)]
	return ok, nil
}

// PassedOver returns the heads that the log has, as far as it was read with this Page, and that
// were given up here: who has not given them up takes them for heads. In any order.
func (p *Page) PassedOver() (ids []commit.ID) {
	for id := range p.passed {
		ids = append(ids, id)
	}
	return ids
}

// pass notes a commit of an entry: what it is built on is no head of the log, nor is it one when
// the log is past it.
func (p *Page) pass(c *commit.Commit, over bool) {
	for _, id := range c.Parents {
		delete(p.passed, id)
	}
	if over {
		p.passed[c.ID] = true
	}
}
