// Package boltpage knows the layout of bbolt files and verifies it, page by page, before bbolt
// itself relies on it. It may import internal/base and nothing else of the module. It has no state.
package boltpage
