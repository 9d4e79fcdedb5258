// Package cloudlink joins the pages of a repository with its cloud.
//
// A Link is what a repository has of its cloud: the file that remembers it, the connection to its
// bucket, and figures of sync. A Page is what an open page has of it. A Keeper keeps all pages in
// step in the background. Changes of which cloud there is have a turn, one at a time; see
// Link.Turn. A call that waits for the turn must not hold what the one who has it waits for:
// Options.Open and Options.Visit.
//
// These hold:
//
//	L1  The file that remembers the cloud is written before pages are synced with that.
//	L2  A page is synced with one bucket at a time, and forgets a former one only when nothing is
//	    lost by it, or when the app has said so.
//	L3  A page that comes from a bucket is wholly here or not at all; see package presence.
//
// The package may import cloudsync and what is below it, storage, and of internal what finds files
// and names pages; see the table of archtest. It knows nothing of handles, transactions and merges:
// it gets functions. Everything may be called concurrently, unless its comment says otherwise.
package cloudlink
