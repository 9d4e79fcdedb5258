// Package wtf8 converts between UTF-16 of scripts and Go strings without loss.
//
// Strings of scripts are sequences of UTF-16 code units, possibly with lone surrogates. WTF-8 is
// UTF-8 that also encodes a lone surrogate, in three bytes. Every sequence of code units has
// exactly one WTF-8 string, and a string without lone surrogates is plain UTF-8.
//
// The package imports nothing of the module. Its functions may be used concurrently.
package wtf8
