package split

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// maxDepth bounds the levels of index pieces of an object. Cuts of the greatest level and full
// index pieces of 1500 children make at most 14 for 2^63 bytes.
const maxDepth = 16

// builder makes the index pieces over a sequence of chunks. lists[i] holds the children waiting for
// their index piece of level i; all of lists[i+1] precedes them in the object.
type builder struct {
	emit  Emit
	lists [maxDepth][]flatbuffers.IndexChild
}

func (u *builder) reset(emit Emit) {
	u.emit = emit
	for i := range u.lists {
		u.lists[i] = u.lists[i][:0]
	}
}

// chunk emits a chunk and adds it to the tree.
func (u *builder) chunk(ctx context.Context, c *chunk) error {
	if err := u.piece(ctx, c.digest, c.content); err != nil {
		return err
	}
	if err := u.add(ctx, 0, flatbuffers.IndexChild{Digest: c.digest, Size: uint64(len(c.content))}); err != nil {
		return err
	}
	for i := range level(c.hash) {
		if err := u.close(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (u *builder) piece(ctx context.Context, d object.Digest, content []byte) error {
	if err := u.emit(ctx, Piece{Digest: d, Content: content}); err != nil {
		return fmt.Errorf("emit piece %s: %w", d, err)
	}
	return nil
}

func (u *builder) add(ctx context.Context, i int, c flatbuffers.IndexChild) error {
	if i == maxDepth {
		return fmt.Errorf("split an object into more than %d levels: %w", maxDepth, base.ErrTooLarge)
	}
	u.lists[i] = append(u.lists[i], c)
	if len(u.lists[i]) == flatbuffers.MaxIndexChildren {
		return u.close(ctx, i)
	}
	return nil
}

// close ends the list of level i: its index piece, or its only child, is added to the level above.
func (u *builder) close(ctx context.Context, i int) error {
	l := u.lists[i]
	if len(l) == 0 {
		return nil
	}
	up := l[0]
	if len(l) > 1 {
		content, err := flatbuffers.EncodeIndex(l)
		if err != nil {
			return fmt.Errorf("make index piece: %w", err)
		}
		up.Digest = object.Sum(object.Index, content)
		if err := u.piece(ctx, up.Digest, content); err != nil {
			return err
		}
		for _, c := range l[1:] {
			up.Size += c.Size
		}
	}
	u.lists[i] = l[:0]
	return u.add(ctx, i+1, up)
}

// finish ends all lists and returns the root. At least one chunk was added.
func (u *builder) finish(ctx context.Context) (flatbuffers.IndexChild, error) {
	for i := 0; ; i++ {
		if len(u.lists[i]) == 1 && u.emptyAbove(i) {
			return u.lists[i][0], nil
		}
		if err := u.close(ctx, i); err != nil {
			return flatbuffers.IndexChild{}, err
		}
	}
}

func (u *builder) emptyAbove(i int) bool {
	for _, l := range u.lists[i+1:] {
		if len(l) > 0 {
			return false
		}
	}
	return true
}
