// Package spool keeps bytes that are written now and read again soon: in memory while they are few,
// else in a temporary file.
//
// It imports nothing of the module. A Spool belongs to one goroutine at a time.
package spool
