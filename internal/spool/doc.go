// Package spool buffers bytes that are soon read again: in memory up to a limit, beyond it in a
// temporary file.
//
// It imports nothing of the module. A Spool belongs to one goroutine at a time.
package spool
