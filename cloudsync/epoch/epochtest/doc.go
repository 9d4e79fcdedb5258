// Package epochtest is what models of the log need beside package epoch: what a body makes of a log
// state, and which base a merge has. The product does the one in package replica, on storage, and
// the other in package merge, on commits. It is for tests, imports package epoch alone, and its
// functions change nothing that they are given.
package epochtest
