// Package keys manages the keys of a sealed cloud: key files, passphrases, recovery words, and the
// bucket's keyring, which has a slot for each of them.
//
// The first device makes a key file, of which all other devices get a copy:
//
//	err := keys.CreateFile("ledger.key", nil)
//	cloud := &ledger.Cloud{URL: url, KeyFile: "ledger.key"}
//	repo, err := ledger.Open(ctx, dir, &ledger.Options{Cloud: cloud})
//
// Recovery words open the cloud when every device has lost the file:
//
//	words, err := keys.NewRecoveryWords()
//	ring, err := keys.Change(ctx, repo, &keys.ChangeOptions{AddWords: words, Label: "paper"})
//
// A stolen device can be shut out of everything written later:
//
//	ring, err := keys.Change(ctx, repo, &keys.ChangeOptions{Without: []string{"phone"}})
//
// The errors are those of package ledger. All functions may be called concurrently. The package
// uses package cloudsync/seal, and reaches the cloud of a repository through internal/bridge. Its
// API may change with any release.
package keys
