// Package leak says what the owner of a sealed bucket can tell from it: from the names, lengths and
// times of its objects, which is all that he sees without watching requests. It opens nothing and
// needs no key.
//
// It imports bucket, seal and wire of cloudsync. It may change with any release.
package leak
