// Package epochtest has what models of the log need beside package epoch: the log state after a
// body, and the base of a merge. The product computes the former in package replica, on storage,
// and the latter in package merge, on commits. The package is for tests and imports only package
// epoch. Its functions do not change their arguments.
package epochtest
