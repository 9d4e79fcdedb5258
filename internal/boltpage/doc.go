// Package boltpage defines the layout of bbolt files and verifies it, page by page, before bbolt
// relies on it. It may import internal/base and nothing else of the module. It has no state.
package boltpage
