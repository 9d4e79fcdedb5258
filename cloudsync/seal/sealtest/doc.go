// Package sealtest is for tests that seal in bubbles of testing/synctest. It has no format, and
// only tests import it.
package sealtest
