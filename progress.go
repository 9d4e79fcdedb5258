package ledger

// Progress is how much of a long call is done, for display. A total of 0 is unknown.
type Progress struct {
	// Done and Total count pages, files, objects or lines.
	Done, Total int64
	// Bytes and TotalBytes are their lengths.
	Bytes, TotalBytes int64
	// Now names the present one; "" when it has no name.
	Now string
}
