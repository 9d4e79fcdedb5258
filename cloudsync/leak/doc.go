// Package leak shows what the owner of a sealed bucket can learn from it: from the names, lengths
// and times of its objects, which is all that the owner sees without watching requests. It opens no
// object and needs no key.
//
// It imports bucket, seal and wire of cloudsync. The package may change with any release.
package leak
