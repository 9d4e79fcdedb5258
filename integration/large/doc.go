// Package large has the tests of data larger than memory: one value of gigabytes, one transaction
// of millions of keys. It has no code of its own.
package large
