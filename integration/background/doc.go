// Package background has the tests of sync as it runs by itself: devices with several pages each,
// whose backgrounds look, send, fail and try again, while callers commit, wait, leave, pause, close
// and are killed. It has no code of its own.
//
// A History is made from a seed and carried out in virtual time. Every request waits until the
// scheduler lets it through, one at a time, in an order that follows from the seed, and each time
// that nothing moves any more the promises are looked at:
//
//	W1: no call and no direction is in progress without a request under way, or one that is soon
//	    made again.
//	W2: what has failed is well again by itself some time after the trouble is over, also where
//	    only the user could help.
//	W3: what is not in the bucket is sent, when nothing is in the way; and nothing is said to be
//	    pending when there is nothing.
//	W4: WaitSynced returns when its commit is in the bucket and not before, and fails only when
//	    something went wrong.
//	W5: in pause there is no request but those of callers, and those that say good-bye.
//	W6: requests stay within the model: one look a poll, no list and no put by who has nothing to
//	    do, a bounded number by who fails.
//	W7: after healing all pages of all devices have one head each, and everything that was
//	    acknowledged.
//	W8: nothing runs on after everything was closed.
//	W9: who watches misses no change of a state.
//	W10: after Sync everything that was committed before is in the bucket, and everything that was
//	     there before is here.
//
// More histories than CI runs, and one alone with what happens:
//
//	go test ./integration/background -run Histories -histories 5000
//	go test ./integration/background -run Histories -seed 17 -v
package background
