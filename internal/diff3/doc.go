// Package diff3 merges two sequences that come from a third one. It knows nothing of what the
// elements mean, and imports nothing of the module.
package diff3
