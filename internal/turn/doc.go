// Package turn has a lock that its holder may keep across I/O.
//
// The package imports only the standard library. A Lock is safe for concurrent use.
package turn
