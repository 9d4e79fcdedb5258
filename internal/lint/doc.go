// Package lint checks rules of the source code by text search, as tests. It has no code of its own.
package lint
