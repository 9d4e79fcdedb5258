// Package archtest has the table of permitted imports for each package, and a test that fails when
// the code differs. It has no code of its own.
package archtest
