package presence

// State says where a page is and what is being done with it.
type State uint8

// The states. Absent, Away and Here are at rest.
const (
	Absent  State = iota // not known here, or deleted here
	Away                 // evicted: the bucket has it
	Coming               // it is made from what the bucket has
	Here                 // on the disk, and closed
	Opening              // its store is being opened
	Open                 // it has handles
	Closing              // its store is being closed
	Leaving              // one caller has it alone, who may let it leave
)

// event is what somebody wants of a page, or what came of what was done with it.
type event uint8

const (
	use     event = iota // open it, and make or fetch it when it is not here
	look                 // open it when it is here
	fetch                // have it here
	take                 // have it alone
	giveUp               // have it alone, of a page whose handles all give way
	forget               // an evicted page counts as deleted
	last                 // the last handle was dropped
	release              // who has it alone gives it back
	leave                // who has it alone lets it leave
	done                 // the effects of the last step are done
	failed               // one of them failed
	events
)

// effect is one thing that a step does.
type effect uint8

const (
	fill       effect = iota // make and fill {page}.coming
	adopt                    // rename it to the page's directory
	enroll                   // note the names of the page, and make the directory of its ledger
	create                   // make the page, empty
	start                    // open its store
	stop                     // close its store
	rewrite                  // replace {page}.away, durably
	record                   // write {page}.away
	syncRecord               // make its content durable
	nameRecord               // make its name durable
	dropRecord               // remove {page}.away
	setAside                 // rename the page's directory to {page}.gone-n
	takeBack                 // undo that
	syncNames                // make the names of the ledger's directory durable
	vanish                   // tell the host that the page has left
	erase                    // remove {page}.gone-n
	discard                  // remove {page}.coming
)

// answer says what becomes of an event.
type answer uint8

const (
	no    answer = iota // the event does not fit the state
	move                // the state is left for the next one
	share               // it is granted in this state
	wait                // the state must change first
)

// step is what becomes of an event in a state: unless the answer is move, only that.
type step struct {
	answer  answer
	next    State
	effects []effect
}

var (
	denied  = step{}
	granted = step{answer: share}
	queued  = step{answer: wait}
)

func to(next State, effects ...effect) step { return step{move, next, effects} }

// table is all that there is to know about the order of states. A missing entry is a denial.
var table = [...]map[event]step{
	Absent: {
		use: to(Opening, enroll, create, dropRecord, start),
	},
	Away: {
		use:    to(Coming, fill, adopt, syncNames, dropRecord), // A3
		fetch:  to(Coming, fill, adopt, syncNames, dropRecord),
		forget: to(Leaving, rewrite, vanish),
	},
	Coming: {
		use: queued, fetch: queued, forget: queued,
		done: to(Here), failed: to(Away),
	},
	Here: {
		use: to(Opening, enroll, start), look: to(Opening, enroll, start),
		take: to(Leaving),
	},
	Opening: {
		use: queued, look: queued, fetch: queued, take: queued, forget: queued,
		done: to(Open), failed: to(Here), // or to Absent, when it was to be made
	},
	Open: {
		use: granted, look: granted,
		giveUp: to(Leaving),
		last:   to(Closing, stop),
	},
	Closing: {
		use: queued, look: queued, fetch: queued, take: queued, forget: queued,
		done: to(Here), failed: to(Here),
	},
	Leaving: {
		use: queued, look: queued, fetch: queued, take: queued, forget: queued,
		last:    to(Leaving, stop), // of a page that was given up
		release: to(Here),
		leave:   to(Leaving, record, syncRecord, nameRecord, setAside, syncNames, vanish, erase), // A2
		done:    to(Away), failed: to(Here),                                                      // or what the files say: see atRest
	},
}

// next is the state machine.
func next(s State, e event) step { return table[s][e] }

// undo has what is done when an effect failed. What was done before it stays: the rules A1 to A4
// make it harmless, and after a failed syncNames nobody knows what a power cut leaves.
var undo = map[State]map[effect]effect{
	Coming:  {adopt: discard},
	Leaving: {record: dropRecord, syncRecord: dropRecord, nameRecord: dropRecord, setAside: dropRecord, syncNames: takeBack},
}

// OnDisk reports whether the page is here, at rest or not.
func (s State) OnDisk() bool { return s >= Here }

func (s State) resting() bool { return s == Absent || s == Away || s == Here }
