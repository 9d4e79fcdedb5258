// Package archtest holds the table of which package may import which, and the test that fails when
// the code differs. It has no code of its own.
package archtest
