package storage

import (
	"context"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
)

// CloudPlace says where in the bucket a piece stands: in a pack, or in an entry of the page's log.
type CloudPlace struct {
	// Pack is the id of the pack, zero for a piece in a log entry. Entry is the number of that
	// entry, zero for a pack.
	Pack  [16]byte
	Entry uint64
	// Block is the number of the pack's block, or which of the entry's pieces it is.
	Block uint32
	// Offset and StoredBytes say where the block stands in the pack's stream, as it is before it is
	// sealed; they are zero for an entry.
	Offset      int64
	StoredBytes uint32
	// At is where in the plaintext of the block the piece begins, zero for an entry. Bytes is its
	// length.
	At, Bytes uint32
	// KeyIndex is that of the key with which the pack or entry is sealed.
	KeyIndex uint32
}

// PlacedPiece is a piece that the bucket holds.
type PlacedPiece struct {
	Digest object.Digest
	Place  CloudPlace
}

// ReceivedCommit is a commit that came from the bucket. Treeless says that its tree may not be
// here: it is known as a part of history only. Shallow says that those of its parents that are not
// here were given up: they count as pruned. Inner says that what was built on it was, so that it is
// no head.
//
// Ahead says that it is a part of history whose heads come in a later batch: it is treeless, and
// neither becomes a head nor are its parents none any more because of it. When that batch does not
// come, Anew lets a commit that came ahead count as if it were new, when it comes again; for others
// it says nothing.
type ReceivedCommit struct {
	Commit   *commit.Commit
	Treeless bool
	Shallow  bool
	Inner    bool
	Ahead    bool
	Anew     bool
}

// TagChange is a change of a tag: it points to Commit, or is removed.
type TagChange struct {
	Name    string
	Commit  commit.ID
	Removed bool
}

// Bounds of what one call of sync takes. MaxSyncBytes bounds the commits, tags and metadata of a
// SyncBatch as they are written, and the content of fetched pieces; MaxSyncPieces the count of
// these.
const (
	MaxSyncBytes  = 32 << 20
	MaxSyncPieces = 8192
)

// SyncBatch is what one step of sync changes, in one batch of the log: all of it is durable, or
// nothing. Only when it has many places and unplaced pieces do most of these go ahead in batches
// of their own (see SubmitSync).
type SyncBatch struct {
	// Commits have come from other devices, parents before children; they are synced from the
	// beginning. The parents of each come before it, are here or were pruned, unless it is Shallow.
	// A commit that is here already and unsynced becomes synced; one that came treeless and comes
	// again with its tree is treeless no more.
	Commits []ReceivedCommit
	// Inner are commits that are here, and no heads any more since what is built on them came
	// ahead.
	Inner []commit.ID
	// Synced are commits that were made here and are unsynced no more. Unsynced ones are to be sent
	// again.
	Synced, Unsynced []commit.ID
	// Places are pieces that the bucket holds: they become synced. A later place of a piece
	// replaces an earlier one. Unplaced are pieces whose place is gone, or will be: those held
	// here become local, others have no place any more. Unplaced counts before Places.
	Places   []PlacedPiece
	Unplaced []object.Digest
	// Tags have come from other devices: they hold unless the tag was changed here and that change
	// is unsynced. SyncedTags are changes made here that are in the bucket now; a tag that was
	// changed again since stays unsynced. SyncedTags count before Tags: a change of a tag that goes
	// with another one behind it stands in both.
	Tags, SyncedTags []TagChange
	// Metadata are rows that change.
	Metadata []Metadata
}

// PieceState says what the page knows of a piece.
type PieceState struct {
	// Held says that its content is in the log.
	Held bool
	// Synced says that the bucket has it, at Place. A piece that is held and not synced is local,
	// or transient before its commit.
	Synced bool
	Place  CloudPlace
}

// Fetcher gives pieces that the bucket has and the page does not hold. Fetch may block for the
// network, obeys ctx, and returns the content, which storage verifies; it may have stored it, and
// others that came with it, with AddFetched. A place that is zero says that the page knows none,
// and that the bucket's log may tell of one (MetadataAdopted). Errors match base.ErrNetwork,
// base.ErrGone, base.ErrCorrupt or are those of ctx.
type Fetcher interface {
	Fetch(ctx context.Context, d object.Digest, place CloudPlace) ([]byte, error)
	// FetchAll gets pieces that have a place with as few requests as it can, stores them with
	// AddFetched, and returns how many bytes of content came.
	FetchAll(ctx context.Context, ds []object.Digest) (int64, error)
}

// FetchedPiece is a piece that came from the bucket after its commit.
type FetchedPiece struct {
	Digest  object.Digest
	Content []byte
}
