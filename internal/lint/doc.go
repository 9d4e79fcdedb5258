// Package lint holds the rules of the house that a search through the source can check, as tests.
// It has no code of its own.
package lint
