// Package sealtest is for tests that seal in bubbles of testing/synctest. It holds no format, and
// only tests import it.
package sealtest
