// Package pack moves pieces of values to and from a bucket in packs: sealed objects of 16 MiB that
// hold pieces in blocks of about 128 KiB, with a table of contents at the beginning.
//
// Uploader fills packs and uploads them, Reader reads one pack, and Fetcher fetches single pieces
// on demand.
//
// # What a pack shows
//
// Packs are objects: a stream of blocks, sealed in frames of one length, and padded. A pack is
// filled until the next block would exceed wire.PackBytes, and padded to that, so that all packs of
// an upload but the last one of each sort have one length. Runs of blocks of about
// wire.StretchBytes are in random order in a pack: the offset of a read reveals nothing about the
// order of a value. One block is compressed together; its pieces are in the order in which they
// were added.
//
// # The id of a pack
//
// A pack's id is the id that the Sealer drew for its object, and the object's name ends in it. So
// the place of a piece is enough to open its frames, and a piece costs one range request without a
// read of the object's head. The object is bound to the directory of the packs of its page and to
// its id, from which its key is derived, in place of its full name. A pack under the name of
// another one, or of another page, does not open, or is noticed by its id.
//
// # Requests
//
// An uploaded pack costs one put. A pack that is read whole costs one get. A table costs one get
// (two if it is longer than expected), including the index pieces of LAZY values. A fetched piece
// costs one get for the frames of its block and, once for each pack, one for the pack's table, by
// which the other pieces of the block are stored as well. FetchAll reads adjacent blocks with one
// get: a range of 1 MiB of a value lies in at most two runs.
//
// # Invariants
//
//	I1  A piece is given out, or stored, only when its content has its digest.
//	I2  Fetch stores nothing of a block unless all pieces of it are what the pack's table says.
//	I3  Uploaded is called for a pack only after the bucket has said that it is stored.
//	I4  No two pieces of a pack have the same digest, and the pieces of a block fill it.
//
// # Concurrency
//
// An Uploader belongs to one goroutine; it compresses in a second one, and seals and uploads in
// others. A Fetcher is safe for concurrent use. It fetches each block on a goroutine of its own,
// which ends when it is done or all its waiters have left. No mutex is held across I/O or a
// callback, and no two are held at once.
//
// The package imports bucket, epoch, seal and wire of cloudsync, object and storage of the module.
// It must not import packages that interpret entries, or the worker. The package may change with
// any release.
package pack
