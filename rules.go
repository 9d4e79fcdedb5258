package ledger

// MergeOptions say how the heads of pages come together. The zero value merges them in the background by
// LastOneWins.
type MergeOptions struct {
	// Manual leaves several heads as they are until Page.Merge is called.
	Manual bool
}
