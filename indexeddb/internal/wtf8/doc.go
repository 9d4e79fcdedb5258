// Package wtf8 turns UTF-16 of scripts into Go strings and back without loss.
//
// Strings of scripts are sequences of UTF-16 code units, in which a surrogate may stand alone.
// WTF-8 is UTF-8 that also writes a lone surrogate, as three bytes. Every sequence of code units
// has exactly one WTF-8 string, and a string without lone surrogates is plain UTF-8.
//
// It imports nothing of the module. Its functions may be used concurrently.
package wtf8
