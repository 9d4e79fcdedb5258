package protocol

// Figures of the machine's behaviour.
const (
	// hitsForRanges is how many entries in a row are read one by one before ranges are tried.
	hitsForRanges = 4
	// aheadSingle is how many entries behind the one that is asked for will probably be asked for
	// too.
	aheadSingle = 3
	// losesForward is how many numbers in a row are lost before the log is read to its end again:
	// then others are many or far ahead, and a get costs a twelfth of a put.
	losesForward = 2
	// maxTries bounds the puts at one free name that were not confirmed, and maxPuts those of one
	// operation.
	maxTries = 4
	maxPuts  = 64
)

type operation uint8

const (
	opNone operation = iota
	opVerify
	opCatchUp
	opAppend
	opLook
)

// phase says to what the next answer belongs.
type phase uint8

const (
	phaseIdle   phase = iota
	phaseSeek         // reading the entry behind the tail
	phaseProve        // reading the entry at the position
	phaseLook         // reading floors, for the newest
	phaseSearch       // reading floors, for the first above the held entry
	phasePut
	phaseApply
	phaseSettle
)

// then says what follows once the newest floor, a proof or an apply is there.
type then uint8

const (
	thenSeek    then = iota // read on
	thenJudge               // judge the held entry
	thenProved              // the position is proved
	thenExplain             // the entry at the position is not there: does a floor explain it?
	thenDone                // the operation has what it wanted
	thenPut                 // put the body
	thenOwn                 // settle the held entry
	thenRemake
	thenBroken  // prove the position, as the entry behind it does not fit
	thenNowhere // end, as the entry behind it should be there
)

// Machine is one page's log as one device sees it. It is not safe for concurrent use.
type Machine struct {
	rules    *rules
	maxBatch int64

	at         Position // applied
	floor      Floor
	looked     Time // a time before the last look, 0 when it is not known
	everLooked bool
	condemned  map[ID]struct{} // packs, by what is applied; names are never used again, so that nothing is ever removed from it: 16 bytes for each 16 MiB
	below      uint64          // condemned entries
	first      band            // the last result of a search
	open       ID              // body of the last append, which did not end well: it may be in the log all the same
	openDevice ID
	outdated   bool // a part of it is in the log, in an entry of an earlier life of the device
	landed     ID   // that body, once it was read
	landedAt   Position
	landedNew  Time
	proofs     uint64 // proofs of the position, those by an entry behind it included

	run // of the operation
}

// band are the entries from and to which (excluded) one floor, created at created, was the first
// above.
type band struct {
	from, to uint64
	created  Time
}

// run is the state of one operation.
type run struct {
	op    operation
	phase phase
	after then // a look or an apply

	tail    Position // read and chained; applied up to at
	pending int      // accepted entries behind at
	weight  int64
	packs   []ID   // that they condemn: known once they are applied, since the body is made of what is
	entries uint64 // below which they condemn entries
	eager   bool   // try ranges from the beginning
	hits    int

	// of the entry behind the tail
	span    uint64 // from which it is being read
	in      uint64 // span of the range that is at hand, 0 for none; its last number is inTo
	inTo    uint64
	missing [3]uint64 // first numbers of the last range of each span that was not there
	single  uint8     // times that the object of its own was asked for
	beyond  bool
	bad     bool
	looking bool    // a floor was looked for because of it
	why     Outcome // it is nowhere
	held    Entry   // read, but not accepted yet

	// of the proof
	proveLast bool // prove the position at the end, unless an entry behind it has
	ending    bool
	proving   bool // a floor explains that the entry at the position is not there; the one behind it has to prove it
	tried     uint8
	other     bool // something else stands in its place
	broken    bool // the entry behind it does not fit
	answered  Time

	// of the look and the search
	lookNow Time
	asked   uint64
	lo, hi  uint64 // of a look: the newest that is there, the oldest that is not (0: none). Of a search: below the entry, above it
	step    uint64
	loLow   uint64
	hiFloor Floor
	hiRead  bool

	// of the append
	body Body
	sent bool
	// unconfirmed says that the last put was not confirmed, and its name was not seen since.
	unconfirmed bool
	puts, tries int // puts in all, and those at this number that were not confirmed
	lost        int // numbers that others took since the first put
	losses, row int // puts that lost, in all and since the log was read to its end
}

// Options are those of New.
type Options struct {
	// At is where the device stands.
	At Position
	// Floor is the newest floor that was seen, and Looked when.
	Floor  Floor
	Looked Time
	// MaxBatch is the weight at which read entries are applied, in bytes; at least one entry always
	// is.
	MaxBatch int64
}

// New returns a machine at rest.
func New(o Options) *Machine {
	if o.Floor.K == 0 {
		o.Floor = Floor{}
	}
	return &Machine{rules: &honest, maxBatch: o.MaxBatch, at: o.At, floor: o.Floor, looked: o.Looked, condemned: map[ID]struct{}{}}
}

// Position returns what is applied.
func (m *Machine) Position() Position { return m.at }

// Floor returns the newest floor that was seen, and a time by the bucket's clock before it was
// looked for, 0 for never.
func (m *Machine) Floor() (Floor, Time) { return m.floor, m.looked }

// Proofs returns how many proofs there were that the bucket has what was read: one more is one
// since.
func (m *Machine) Proofs() uint64 { return m.proofs }

// Step takes an event and returns what is to be done, in order. After Done the machine is at rest
// and takes the beginning of another operation. An event that does not fit the state ends the
// operation with Failed.
func (m *Machine) Step(ev Event) []Effect {
	switch ev.(type) {
	case StartVerify, StartCatchUp, StartAppend, StartLook:
		if m.op != opNone {
			return m.fail()
		}
		m.run = run{tail: m.at}
		return m.start(ev)
	case EffectFailed:
		return m.fail()
	}
	switch e := ev.(type) {
	case EntryRead:
		if m.phase == phaseSeek {
			return m.entryRead(&e)
		} else if m.phase == phaseProve {
			return m.positionRead(&e)
		}
	case FloorRead:
		if m.phase == phaseLook {
			return m.floorRead(&e)
		} else if m.phase == phaseSearch {
			return m.searchRead(&e)
		}
	case PutAnswered:
		if m.phase == phasePut {
			return m.putAnswered(&e)
		}
	case Applied:
		if m.phase == phaseApply {
			for _, id := range m.packs {
				m.condemned[id] = struct{}{}
			}
			m.below = max(m.below, m.entries)
			m.at, m.pending, m.weight, m.packs = m.tail, 0, 0, nil
			return m.afterApply()
		}
	case Settled:
		if m.phase == phaseSettle {
			m.at, m.tail = m.tailWithHeld(), m.tailWithHeld()
			return m.done(Done{Outcome: Completed, At: m.at, Created: m.held.Created})
		}
	}
	return m.fail()
}

func (m *Machine) start(ev Event) []Effect {
	if _, ok := ev.(StartLook); m.floor.Deleted && !ok {
		return m.done(Done{Outcome: Deleted})
	}
	switch e := ev.(type) {
	case StartVerify:
		m.op = opVerify
		return m.prove()
	case StartCatchUp:
		m.op, m.eager, m.proveLast = opCatchUp, e.First, e.Prove
		return m.seek()
	case StartAppend:
		m.op, m.body = opAppend, e.Body
		return m.startAppend(e.Prove)
	case StartLook:
		m.op = opLook
		return m.look(e.Now, thenDone, true)
	}
	return m.fail()
}

// done ends the operation.
func (m *Machine) done(d Done) []Effect {
	m.remember(d.Outcome)
	m.run = run{}
	return []Effect{d}
}

func (m *Machine) fail() []Effect { return m.done(Done{Outcome: Failed}) }

// flush applies what was accepted, and then goes on as after says.
func (m *Machine) flush(after then) []Effect {
	m.after = after
	if m.pending == 0 {
		return m.afterApply()
	}
	m.phase = phaseApply
	return []Effect{Apply{At: m.tail}}
}

func (m *Machine) afterApply() []Effect {
	switch m.after {
	case thenSeek:
		return m.seek()
	case thenPut:
		return m.tryPut()
	case thenOwn:
		m.phase = phaseSettle
		return []Effect{Settle{At: m.tailWithHeld(), Created: m.held.Created, Lost: m.lost}}
	case thenRemake:
		return m.done(Done{Outcome: Remake})
	case thenBroken:
		m.broken, m.bad, m.other, m.tried = true, false, false, 0
		return m.prove()
	case thenNowhere:
		return m.done(Done{Outcome: m.why, Number: m.at.Number + 1})
	}
	return m.done(Done{Outcome: Completed})
}

func (m *Machine) tailWithHeld() Position { return Position{m.tail.Number + 1, m.held.Hash} }
