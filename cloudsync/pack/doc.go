// Package pack moves pieces of values to and from a bucket in packs: sealed objects of 16 MiB that
// hold pieces in blocks of about 128 KiB, with a table of what stands where at their end.
//
// Uploader fills packs and uploads them, Reader reads one pack, and Fetcher gives single pieces on
// demand.
//
// # What a pack shows
//
// Packs are framed objects: a stream of blocks, sealed in frames of one length, and padded. A pack
// is filled until it has wire.PackBytes, so that all packs of an upload but the last one of each
// sort have one length. Runs of blocks of about wire.StretchBytes stand in a pack in random order:
// from where a reader reads, nothing can be told about the order of a value. What is compressed
// together is one block, whose pieces come in the order in which they were added.
//
// # The id of a pack
//
// A pack's id is the id that the Sealer drew for its object, and the object's name ends in it. So
// the place of a piece says all that is needed to open its frames, and a piece costs one range and
// not the head of its object too. What the object is bound to, in place of its full name, is the
// directory of the packs of its page and the id itself, from which its key comes: a pack under the
// name of another one, or of another page, does not open, or is noticed by its id.
//
// # Requests
//
// An uploaded pack costs one put. A pack that is read whole costs one get, a table one (two when it
// is longer than was to be expected), with the index pieces of LAZY values. A fetched piece costs
// one get for the frames of its block and, once for each pack, one for the pack's table, by which
// the other pieces of the block are stored as well. FetchAll reads blocks that stand side by side
// with one get: a range of 1 MiB of a value lies in at most two runs.
//
// # Invariants
//
//	I1  A piece is given out, or stored, only when its content has its digest.
//	I2  Fetch stores nothing of a block unless all pieces of it are what the pack's table says.
//	I3  Uploaded is told of a pack only after the bucket has said that it is stored.
//	I4  No two pieces of a pack have the same digest, and the pieces of a block fill it.
//
// # Concurrency
//
// An Uploader belongs to one goroutine; it compresses in a second one, and seals and uploads in
// others. A Fetcher is safe for concurrent use: each block is fetched by a goroutine of its own,
// which ends when it is done or when all who wait for it have left. No mutex is held across I/O or
// a callback, and no two are held at once.
//
// The package imports bucket, epoch, seal and wire of cloudsync, object and storage of the module,
// and must not import anything that knows what entries mean, or the worker. It may change with any
// release.
package pack
