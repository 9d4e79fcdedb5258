// Package keys is for what opens a sealed cloud: key files, passphrases, recovery words, and the
// keyring of the bucket, which has a slot for each of them.
//
// The first device makes a key file, which all other devices get a copy of:
//
//	err := keys.CreateFile("ledger.key", nil)
//	cloud := &ledger.Cloud{URL: url, KeyFile: "ledger.key"}
//	repo, err := ledger.Open(ctx, dir, &ledger.Options{Cloud: cloud})
//
// Recovery words are for the day on which no device has the file any more:
//
//	words, err := keys.NewRecoveryWords()
//	ring, err := keys.Change(ctx, repo, &keys.ChangeOptions{AddWords: words, Label: "paper"})
//
// A device that was stolen is shut out of what is written from then on:
//
//	ring, err := keys.Change(ctx, repo, &keys.ChangeOptions{Without: []string{"phone"}})
//
// The errors are those of package ledger. All functions may be called concurrently. The package
// stands on package cloudsync/seal, and reaches the cloud of a repository through internal/bridge.
// Its names may change with any release.
package keys
