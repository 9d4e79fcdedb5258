// Package object names what a page stores: digests of pieces, object identifiers, priorities.
//
// A piece is named by its digest: one prefix byte for the kind of the piece, then the SHA-256 of
// that prefix byte and the content. docs/format/objects.md has the bytes. An object identifier is a
// digest and the index of the key that seals the object in the cloud. Inside hashed content the key
// index is always 0, and only the 33 bytes of the digest are written there.
//
// The package imports only the standard library and internal/base. All its values are comparable
// and may be copied and used concurrently. It may change with any release.
package object
