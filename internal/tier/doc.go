// Package tier sets the effort of the tests. The environment variable LEDGER_TIER names the tier:
//
//	unset  go test ./... on a developer's machine: at most 3 minutes on 2 cores
//	1      .ci/run, for every change: at most 15 minutes
//	2      .ci/nightly: hours
//	3      before a release
//
// A higher tier includes the cases of the lower tiers. Only tests import the package. Its API may
// change with any release.
package tier
