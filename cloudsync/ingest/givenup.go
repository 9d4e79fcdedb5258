package ingest

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

const (
	// givenUpVersion is the first byte of the row storage.MetadataGivenUp, before the first givenUpBytes of the id of each commit that was given up here, the last one last.
	givenUpVersion = 1
	givenUpBytes   = 16
	// maxGivenUp bounds them; the oldest are forgotten: the row has to fit into a record. Of those that come again after that, the last are still known as a rule, and they stand for what they are built on.
	maxGivenUp = 65_000
)

type givenUpID [givenUpBytes]byte

func shortID(id commit.ID) givenUpID { return givenUpID(id[:givenUpBytes]) }

// NoteGivenUp makes durable that commits are given up here, before they are: from then on they are taken for heads no more, whoever sends them again. Those here stay known for what they are until they are pruned. ids
// are those of gc.Prune, in their order. Errors: those of the disk and of ctx, base.ErrCorrupt.
func (p *Page) NoteGivenUp(ctx context.Context, ids []commit.ID) error {
	row, err := p.givenUpRow(ctx)
	if err != nil {
		return err
	}
	known := p.givenUp
	fresh := 0
	for _, id := range slices.Backward(ids) { // the newest last
		if _, ok := known[shortID(id)]; ok {
			continue
		}
		fresh++
		row = append(row, id[:givenUpBytes]...)
	}
	if fresh == 0 {
		return nil
	}
	if most := 1 + maxGivenUp*givenUpBytes; len(row) > most {
		row = append([]byte{givenUpVersion}, row[len(row)-most+1:]...)
	}
	p.givenUp = nil // it is read anew
	pending, err := p.o.Store.SubmitSync(ctx, nil, &storage.SyncBatch{Metadata: []storage.Metadata{{Type: storage.MetadataGivenUp, Value: row}}})
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		return fmt.Errorf("note what is given up: %w", err)
	}
	return nil
}

// givenUpRow reads the row of what was given up here, and what it has into the page.
func (p *Page) givenUpRow(ctx context.Context) ([]byte, error) {
	row, err := p.o.Store.Metadata(ctx, storage.MetadataGivenUp)
	if err != nil {
		return nil, fmt.Errorf("read what was given up: %w", err)
	}
	if len(row) == 0 {
		row = []byte{givenUpVersion}
	}
	if row[0] != givenUpVersion || len(row)%givenUpBytes != 1 {
		return nil, &base.CorruptError{Where: "page.db", Key: "sync_metadata/" + storage.MetadataGivenUp, Want: "1 and parts of ids", Got: fmt.Sprintf("%d bytes", len(row))}
	}
	p.givenUp = make(map[givenUpID]struct{}, len(row)/givenUpBytes)
	for part := range slices.Chunk(row[1:], givenUpBytes) {
		p.givenUp[givenUpID(part)] = struct{}{}
	}
	return row, nil
}

// wasGivenUp reports whether a commit that is not here was given up here.
func (p *Page) wasGivenUp(ctx context.Context, id commit.ID) (bool, error) {
	if p.givenUp == nil {
		if _, err := p.givenUpRow(ctx); err != nil {
			return false, err
		}
	}
	_, ok := p.givenUp[shortID(id)]
	return ok, nil
}

// PassedOver returns the heads that the log has, as far as it was read with this Page, and that were given up here: who has not given them up takes them for heads. In any order.
func (p *Page) PassedOver() (ids []commit.ID) {
	for id := range p.passed {
		ids = append(ids, id)
	}
	return ids
}

// pass notes a commit of an entry: what it is built on is no head of the log, nor is it one when the log is past it.
func (p *Page) pass(c *commit.Commit, over bool) {
	for _, id := range c.Parents {
		delete(p.passed, id)
	}
	if over {
		p.passed[c.ID] = true
	}
}
