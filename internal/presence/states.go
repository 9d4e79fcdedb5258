package presence

// State is where a page is and what is being done with it.
type State uint8

// The states. Absent, Away and Here are at rest.
const (
	Absent  State = iota // unknown on this device, or deleted here
	Away                 // evicted: the bucket has it
	Coming               // being made from the bucket's content
	Here                 // on disk, and closed
	Opening              // its store is being opened
	Open                 // it has handles
	Closing              // its store is being closed
	Leaving              // one caller has it exclusively, and may remove it
)

// event is a caller's request for a page, or the result of a step.
type event uint8

const (
	use     event = iota // open it, and make or fetch it if necessary
	look                 // open it if it is here
	fetch                // fetch it
	take                 // have it exclusively
	giveUp               // have it exclusively, when all its handles are ForSync
	forget               // count an evicted page as deleted
	last                 // the last handle was dropped
	release              // the exclusive caller returns it
	leave                // the exclusive caller removes it
	done                 // the effects of the last step are done
	failed               // one of them failed
	events
)

// effect is one action of a step.
type effect uint8

const (
	fill       effect = iota // make and fill {page}.coming
	adopt                    // rename it to the page's directory
	enroll                   // record the name of the page
	create                   // make the page, empty
	start                    // open its store
	startNew                 // start of a page that create made
	stop                     // close its store
	rewrite                  // replace {page}.away, durably
	record                   // write {page}.away, durably, of a page that is here
	dropRecord               // remove {page}.away
	setAside                 // rename the page's directory to {page}.gone-n
	takeBack                 // undo that
	syncNames                // make the names of the ledger's directory durable
	vanish                   // report to the host that the page has left
	erase                    // remove {page}.gone-n
	discard                  // remove {page}.coming
)

// answer is the response to an event.
type answer uint8

const (
	no    answer = iota // the event does not fit the state
	move                // the page moves to the next state
	share               // it is granted in this state
	wait                // the state must change first
)

// step is the response to an event in a state; only a move has a next state and effects.
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

// table defines all transitions. An event without an entry is denied.
var table = [...]map[event]step{
	Absent: {
		use: to(Opening, enroll, create, dropRecord, startNew),
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
		last:    to(Leaving, stop), // of a page whose handles gave way
		release: to(Here),
		leave:   to(Leaving, record, setAside, syncNames, vanish, erase), // A2
		done:    to(Away), failed: to(Here),                              // or by the files: see atRest
	},
}

// next is the state machine.
func next(s State, e event) step { return table[s][e] }

// undo has the effects that follow a failed effect. Earlier effects are not undone: by the rules A1
// to A4 they are harmless, and after a failed syncNames the result of a power cut is unknown. A new
// page that cannot be opened, as on a full disk, leaves with the record that it had.
var undo = map[State]map[effect][]effect{
	Opening: {startNew: {record, setAside, vanish, erase}},
	Coming:  {adopt: {discard}},
	Leaving: {record: {dropRecord}, setAside: {dropRecord}, syncNames: {takeBack}},
}

// OnDisk reports whether the page is here, at rest or not.
func (s State) OnDisk() bool { return s >= Here }

func (s State) resting() bool { return s == Absent || s == Away || s == Here }
