// Package cloudlink connects the pages of a repository with its cloud.
//
// A Link is the repository's side of its cloud: the file that stores its settings, the connection
// to the bucket, and sync figures. A Page is the cloud state of an open page. A Keeper syncs all
// pages in the background. Changes of the cloud take a turn, one at a time; see Link.Turn. A caller
// that waits for the turn must not hold anything for which Options.Open and Options.Visit wait.
//
// Invariants:
//
//	L1  The file with the cloud is written before pages are synced with that cloud.
//	L2  A page is synced with one bucket at a time, and forgets a former bucket only when no data
//	    is lost, or when the app has allowed it.
//	L3  A page from a bucket is completely on this device or not at all; see package presence.
//
// The package may import cloudsync and the packages below it, storage, and the internal packages
// that find files and name pages; see the table of archtest. It does not use handles, transactions
// or merges, but functions in its options. All may be called concurrently, unless a comment says
// otherwise.
package cloudlink
