package storage

import (
	"context"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
)

// CloudPlace is the place of a piece in the bucket: in a pack, or in an entry of the page's log.
type CloudPlace struct {
	// Pack is the id of the pack, zero for a piece in a log entry. Entry is the number of that
	// entry, zero for a pack.
	Pack  [16]byte
	Entry uint64
	// Block is the number of the pack's block, or the index of the piece in the entry.
	Block uint32
	// Offset and StoredBytes locate the block in the pack's stream before it is sealed; they are
	// zero for an entry.
	Offset      int64
	StoredBytes uint32
	// At is the offset of the piece in the plaintext of the block, zero for an entry. Bytes is its
	// length.
	At, Bytes uint32
	// KeyIndex is the index of the key that seals the pack or entry.
	KeyIndex uint32
}

// PlacedPiece is a piece that the bucket holds.
type PlacedPiece struct {
	Digest object.Digest
	Place  CloudPlace
}

// ReceivedCommit is a commit that was received from the bucket. Treeless says that this device may
// lack its tree: the commit is part of history only. Shallow says that parents which this device
// lacks were given up: they count as pruned. Inner says that the children of the commit were given
// up, so that it is no head.
//
// Ahead says that the commit is part of a history whose heads arrive in a later batch. Such a
// commit is treeless: it becomes no head, and its parents stay heads. Anew is for the case that the
// later batch never arrives: when a commit that was received ahead is received again with Anew, it
// counts as new. For other commits Anew has no effect.
type ReceivedCommit struct {
	Commit   *commit.Commit
	Treeless bool
	Shallow  bool
	Inner    bool
	Ahead    bool
	Anew     bool
}

// TagChange is a change of a tag: the tag points to Commit, or is removed.
type TagChange struct {
	Name    string
	Commit  commit.ID
	Removed bool
}

// Bounds of one sync call. MaxSyncBytes bounds the written size of the commits, tags and metadata
// of a SyncBatch, and the content of fetched pieces; MaxSyncPieces bounds the count of these
// pieces, and of the places in one batch of the log.
const (
	MaxSyncBytes  = 32 << 20
	MaxSyncPieces = 8192
)

// SyncBatch is the change that one step of sync makes, in one batch of the log: all of it is
// durable, or nothing. Only when it has many Places and Unplaced pieces, most of these precede it
// in batches of their own (see SubmitSync).
type SyncBatch struct {
	// Commits are from other devices, parents before children; they are synced from the beginning.
	// The parents of each precede it, are in the page or were pruned, unless it is Shallow. A
	// commit that the page has as unsynced becomes synced. A treeless commit that is received with
	// its tree is treeless no more.
	Commits []ReceivedCommit
	// Inner are commits of the page that are heads no more, because their descendants were received
	// ahead.
	Inner []commit.ID
	// Synced are commits made on this device that become synced. Unsynced ones are to be sent
	// again.
	Synced, Unsynced []commit.ID
	// Places are pieces that the bucket holds: they become synced. A later place of a piece
	// replaces an earlier one. Unplaced are pieces whose place is gone, or will be: those that the
	// page holds become local, the others lose their place. Unplaced applies before Places.
	Places   []PlacedPiece
	Unplaced []object.Digest
	// Tags are changes from other devices: they hold unless the tag was changed on this device and
	// that change is unsynced. SyncedTags are changes made on this device that the bucket has now;
	// a tag that was changed again since stays unsynced. SyncedTags apply before Tags: a change of
	// a tag that another change follows is in both.
	Tags, SyncedTags []TagChange
	// Metadata are rows that change.
	Metadata []Metadata
}

// PieceState is the state of a piece in the page.
type PieceState struct {
	// Held says that its content is in the log.
	Held bool
	// Synced says that the bucket has it, at Place. A piece that is held and not synced is local,
	// or transient before its commit.
	Synced bool
	Place  CloudPlace
}

// Fetcher fetches pieces that the bucket has and the page does not hold. Fetch may block for the
// network, obeys ctx, and returns the content, which storage verifies. It may have stored that
// piece, and others received with it, by AddFetched. A zero place says that the page has no place
// for the piece, and that the bucket's log may record one (MetadataAdopted). Errors match
// base.ErrNetwork, base.ErrGone, base.ErrCorrupt or are those of ctx.
type Fetcher interface {
	Fetch(ctx context.Context, d object.Digest, place CloudPlace) ([]byte, error)
	// FetchAll fetches pieces that have a place with as few requests as possible, stores them with
	// AddFetched, and returns how many bytes of content it received.
	FetchAll(ctx context.Context, ds []object.Digest) (int64, error)
}

// FetchedPiece is a piece that was received from the bucket after its commit.
type FetchedPiece struct {
	Digest  object.Digest
	Content []byte
}
