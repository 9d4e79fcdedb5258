// Package limits holds the bounds that several packages share. They are part of the formats or of
// the API.
package limits

const (
	// MaxKeyBytes is the greatest length of a key in a page.
	MaxKeyBytes = 4096
	// MaxPieceBytes is the greatest length of a piece of a value.
	MaxPieceBytes = 64 << 10
	// MaxNodeBytes is the greatest length of a tree node. A node has 16 entries on average. Less
	// than one in 10^26 nodes of the longest keys and inline values would be longer, unless the
	// keys were chosen for that.
	MaxNodeBytes = 4 << 20
	// MaxTimestamp is the greatest timestamp of a commit, in nanoseconds since 1970.
	MaxTimestamp = 1 << 62
	// MaxAhead is how far a commit's timestamp may be ahead of its device's clock, in nanoseconds,
	// to follow a parent with a later timestamp. See commit.New.
	MaxAhead = 24 * 60 * 60 * 1_000_000_000
	// MaxMessageBytes bounds the message of a commit.
	MaxMessageBytes = 16 << 10
	// MaxDeviceBytes bounds the device name of a commit.
	MaxDeviceBytes = 256
	// MaxLedgerNameBytes bounds the name of a ledger. The name of its directory has 240 characters
	// then, which every file system allows.
	MaxLedgerNameBytes = 150
	// MaxPageNameBytes bounds the human name of a page.
	MaxPageNameBytes = 1024
	// MaxTagBytes bounds the name of a tag.
	MaxTagBytes = 256
)
