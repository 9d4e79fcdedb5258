// Package diff3 merges two sequences derived from a third one. It imports nothing of the module.
package diff3
