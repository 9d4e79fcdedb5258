// Package segment is the log of a page: numbered batches of opaque records in append-only segment
// files. The log is authoritative; the index is folded from it and can be rebuilt.
//
// A Stream appends batches to a segment of its own; streams append concurrently. A batch is one
// write and one sync, and exists wholly or not at all. Open finds the valid batches, sets torn
// tails aside, syncs what may never have been synced, and replays the batches in the order of their
// numbers.
//
// A segment whose live records were copied forward is retired (see Log.Retire).
//
// The package does not interpret records. It imports internal/base, internal/vfs and the standard
// library, and must not import storage, the index, or anything about pieces and commits.
//
// # Format
//
// All integers are big-endian unless they are uvarints. See docs/format/segment.md. A segment is a
// header and batches without gaps. Its file is named by its id, eight lower-case hexadecimal
// digits, and ".seg"; ids start at 1 and are never used again.
//
//	header      0   4  "LSEG"
//	            4   4  format version: 2
//	            8  16  page id
//	           24   4  segment id
//	           28   4  CRC-32C of bytes 0 to 27; these 32 bytes are the same in every version
//
//	batch       0   4  "LBT" and 1, the version of this frame
//	            4   8  number of the batch
//	           12   4  length of the records, r
//	           16   4  count of the records
//	           20   4  count of the ends, e
//	           24   4  CRC-32C of the seed and bytes 0 to 23
//	           28   r  records
//	         28+r 12e  ends, ascending: segment id (4), its synced end (8); ranges of retired
//	                   segments (see allEnds)
//	     28+r+12e   4  CRC-32C of the seed and all bytes of the batch before
//
//	record      0   1  kind
//	            1   n  length of the payload as the shortest uvarint
//	          1+n      payload
//
//	seed            0  16  page id         the place of the batch, so that bytes that look like a
//	                                       batch
//	               16   4  segment id      count only where the batch was written
//	               20   8  offset of the batch in the segment
//
// # Invariants
//
//	I1: numbers ascend within a segment. They are one sequence over all segments, in which numbers
//	    may be missing.
//	I2: a segment has at most one batch that is not synced: the next is written when the sync has
//	    returned. So a frame at an offset proves that everything before it in that segment was
//	    synced.
//	I3: the ends that a batch lists are synced: those of every segment that is still appended to,
//	    its own included, and of those that were finished since the last durable batch that listed
//	    them. An end that a batch lists, that a frame follows, or that a Position holds is named.
//	    Invalid bytes before a named end are damage.
//	I4: the header of a segment and its name are durable before a batch is written to it.
//	I5: after the last named end there are at most one valid batch and a torn tail. A writer
//	    trusts neither: it cuts the tail, writes the batch again in its place, and syncs it, all
//	    before anything is appended.
//	I6: a batch whose sync failed may or may not exist after the next Open. Complete stops before
//	    it.
//	I7: a batch retires a segment, or the end of one; its file is removed or cut afterwards. An
//	    index that reflects less than the batch requires is refused. The batch names the ends of
//	    all other segments. Nothing is appended to a cut segment.
//
//	I8: durable batches are taken back only from the ends of segments, and only when no durable
//	    batch that stays and no Position names an end after their beginning (see Forget). A power
//	    cut may restore them, but none without those whose ends it names.
//
// # Concurrency
//
// A Log is safe for concurrent use. A Stream and a Batch have one user at a time. There are no
// goroutines. Locks: Log.mu guards the table of segments and the numbers; handles.mu guards the
// open read handles. Neither is held during I/O or a callback, and neither is taken under the
// other.
//
// It may change with any release.
package segment
