// Package dump reads the dumps of databases in testdata, for tests: lines of key and value in
// hexadecimal, "-" for an empty value, and comments that begin with "#".
package dump
