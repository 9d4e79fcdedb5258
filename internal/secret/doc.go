// Package secret holds secret bytes: keys, passphrases, tokens, signed addresses.
//
// Printing, logging or marshalling a secret yields a fixed text instead: by fmt with any verb, slog
// with any handler, encoding/json, encoding/xml and other encoders, and in errors built from it.
// The same holds for reflection over a struct with a secret in an unexported field, where no method
// is called. Only Expose returns the bytes, so that a search for that word finds every use of them.
//
// A Bytes is immutable and may be copied and used concurrently. The package imports only the
// standard library. Its API may change with any release.
package secret
