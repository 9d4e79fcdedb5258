// Package histories makes random histories of databases, for tests of merges and checks.
package histories
