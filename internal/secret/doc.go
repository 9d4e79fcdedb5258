// Package secret holds bytes that must not be seen: keys, passphrases, tokens, signed addresses.
//
// What prints, logs or marshals a secret gets a fixed text instead: fmt with any verb, slog with
// any handler, encoding/json and encoding/xml and whatever else asks for text, errors that were
// built from it, and also reflection over a struct that holds one in an unexported field, where no
// method is ever asked. The bytes come out through Expose alone, so that a search for that word
// finds every place that sees them.
//
// A Bytes is immutable and may be copied and used concurrently. The package imports only the
// standard library. It may change with any release.
package secret
