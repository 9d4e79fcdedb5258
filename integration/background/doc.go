// Package background has the tests of background sync. Devices with several pages each look, send,
// fail and try again in the background. Meanwhile callers commit, wait, leave, pause, close and are
// killed. The package has no code of its own.
//
// A History is made from a seed and runs in virtual time. The scheduler lets one request through at
// a time, in an order that follows from the seed. Whenever all goroutines wait, the test checks
// these promises:
//
//	W1: a call or direction in progress has a request in flight, or one that is soon repeated.
//	W2: a failure ends by itself some time after its cause is gone, even a failure that needed
//	    the user.
//	W3: changes missing in the bucket are sent, when nothing prevents it; and the state is not
//	    pending when there are none.
//	W4: WaitSynced returns when its commit is in the bucket and not before, and fails only when
//	    something went wrong.
//	W5: in pause there are only requests of callers, and those that say good-bye.
//	W6: requests stay within the model: one look a poll, no list and no put by an idle device,
//	    and a bounded number by a failing one.
//	W7: after healing, all pages of all devices have one head each, and contain everything that
//	    was acknowledged.
//	W8: nothing runs on after everything was closed.
//	W9: a watcher misses no change of a state.
//	W10: after Sync the bucket has all earlier commits of the device, and the device has
//	     everything that was in the bucket before.
//
// More histories than CI runs, and one alone with its steps:
//
//	go test ./integration/background -run Histories -histories 5000
//	go test ./integration/background -run Histories -seed 17 -v
package background
