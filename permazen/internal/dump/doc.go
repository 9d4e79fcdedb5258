// Package dump reads dumps of databases in testdata, for tests. A line has a key and a value in
// hexadecimal, "-" for an empty value, or a comment that begins with "#".
package dump
