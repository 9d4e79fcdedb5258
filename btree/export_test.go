package btree

// Level returns the level of a key in a page.
func Level(page [16]byte, key []byte) int { return leveler(page).level(key) }
