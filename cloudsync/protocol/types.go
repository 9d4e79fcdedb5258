package protocol

import "time"

// ID is a random id: of an entry, a pack or a device.
type ID [16]byte

// Hash is the hash of all bytes of an entry.
type Hash [32]byte

// Time is a moment by the bucket's clock, in nanoseconds since 1970; 0 is a moment that is not
// known.
type Time int64

// Ages. They are differences of times by the bucket's clock.
const (
	// Freshness is how long a look at the floor holds: what was created later needs another look.
	Freshness = 24 * time.Hour
	// Grace is how long what was condemned, and what a floor has passed, stays at least.
	Grace = 30 * 24 * time.Hour
)

// Add returns the moment d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// TimeOf returns t as Time, 0 for the zero time. What a bucket says may be any time: one that has
// no place is moved to the nearest that has, so that order stays order.
func TimeOf(t time.Time) Time {
	const most = 1 << 62 // so that sums with ages do not overflow
	switch s := t.Unix(); {
	case t.IsZero():
		return 0
	case s < 0:
		return 1
	case s > most/int64(time.Second):
		return most
	}
	return Time(max(t.UnixNano(), 1))
}

// Time returns t as a time.Time in UTC, the zero time for 0.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}

// Position says how far a device has read: Hash is that of entry Number, zero for 0.
type Position struct {
	Number uint64
	Hash   Hash
}

// Floor is what a floor object says. K is its number, 0 for none; Low the lowest number of an entry
// that stays.
type Floor struct {
	K          uint64
	Low        uint64
	Checkpoint uint64
	Deleted    bool
	// Created is when the object was created, 0 when that is not known.
	Created Time
}

// Entry is what the machine needs to know of an entry.
type Entry struct {
	ID       ID
	Previous Hash
	Hash     Hash
	Created  Time
	// Device is the device that wrote the body.
	Device ID
	// Weight is about the memory that it takes in bytes, for the size of batches.
	Weight int64
	// Packs are those that it announces or relies on; Entries the numbers of entries that it relies
	// on.
	Packs   []ID
	Entries []uint64
	// Condemned are the packs that it condemns, and Below, unless 0, condemns all entries with
	// lesser numbers.
	Condemned []ID
	Below     uint64
	// Renewed says that the log begins anew with it: what was before may be damaged, and the hash
	// of it any.
	Renewed bool
}

// Body is what the machine needs to know of a body that is to be appended.
type Body struct {
	ID     ID
	Device ID
	// Packs, Entries, Condemned and Below are as in Entry.
	Packs     []ID
	Entries   []uint64
	Condemned []ID
	Below     uint64
}

// Spans of ranges: how many entries they hold. A range of span s holds the entries from k*s+1 to
// (k+1)*s.
const (
	Single    = 1
	SpanSmall = 32
	SpanLarge = 1024
	// SpanLargest is that of ranges that are there only when entries are short: none has more than
	// 16 MiB.
	SpanLargest = 32 << 10
)

// RangeOf returns the first and last number of the range of the given span that holds entry number,
// which is not 0.
func RangeOf(number, span uint64) (from, to uint64) {
	from = (number-1)/span*span + 1
	return from, from + (span - 1)
}

// Outcome says how an operation ended.
type Outcome uint8

// The outcomes.
const (
	// Completed says that what was asked is done.
	Completed Outcome = iota + 1
	// Landed says that the body was appended by an earlier operation, which could not know it, and
	// has been applied since like any other entry.
	Landed
	// Remake says that the body must be made anew: it relies on what is condemned, or condemns what
	// is relied on, or a part of it is in the log already, in an entry of an earlier life of this
	// device.
	Remake
	// RolledBack says that what this device has read is not in the bucket, and that no floor
	// explains it.
	RolledBack
	// Replaced says that the bucket has other content in the place of what this device has read.
	Replaced
	// Passed says that the entry behind the position is gone, or of no use, and that a floor has
	// passed it.
	Passed
	// Deleted says that the page was deleted for all devices.
	Deleted
	// Busy says that the bucket refused a put again and again though the name was free, or that
	// others were faster again and again.
	Busy
	// Bad says that an entry could not be opened, wherever it was read.
	Bad
	// Broken says that an entry does not carry the hash of the one before it.
	Broken
	// Hole says that an entry is missing though a later one is there, and that no floor explains
	// it.
	Hole
	// Failed says that an effect could not be carried out.
	Failed
)

var outcomes = [...]string{Completed: "completed", Landed: "landed", Remake: "remake", RolledBack: "rolled back", Replaced: "replaced", Passed: "passed",
	Deleted: "deleted", Busy: "busy", Bad: "bad", Broken: "broken", Hole: "hole", Failed: "failed"}

// String returns the word for o.
func (o Outcome) String() string {
	if o == 0 || int(o) >= len(outcomes) {
		return "no outcome"
	}
	return outcomes[o]
}

// Event is what a machine is told: the beginning of an operation, or the answer to its last effect.
type Event interface{ event() }

// Beginnings. An operation may begin when there is none under way, and ends with the effect Done.
type (
	// StartVerify asks for a proof that the bucket is the one that the position belongs to.
	StartVerify struct{}
	// StartCatchUp asks to read to the end of the log. First says that the device has never read
	// it, Prove that the last proof of the position is old.
	StartCatchUp struct{ First, Prove bool }
	// StartAppend asks to append a body.
	StartAppend struct {
		Body  Body
		Prove bool
	}
	// StartLook asks for the newest floor. Now is a time by the bucket's clock before the
	// operation, or 0.
	StartLook struct{ Now Time }
)

// Answers.
type (
	// EntryRead answers GetEntry: there is no such object, or it is bad, or it is Entry. Now is a
	// time by the bucket's clock, not later than the answer, or 0. Beyond says that an entry with a
	// greater number was seen.
	EntryRead struct {
		Found, Bad bool
		Entry      Entry
		Now        Time
		Beyond     bool
	}
	// FloorRead answers GetFloor.
	FloorRead struct {
		Found bool
		Floor Floor
	}
	// PutAnswered answers Put. Stored says that the bucket has confirmed it; everything else is not
	// known and looked for. Created is 0 when the bucket does not tell.
	PutAnswered struct {
		Stored  bool
		Created Time
		Hash    Hash
	}
	// Applied answers Apply: the entries and the position are durable.
	Applied struct{}
	// Settled answers Settle: that the body is in the log, and the position, are durable.
	Settled struct{}
	// EffectFailed answers any effect that could not be carried out. It ends the operation.
	EffectFailed struct{}
)

func (StartVerify) event()  {}
func (StartCatchUp) event() {}
func (StartAppend) event()  {}
func (StartLook) event()    {}
func (EntryRead) event()    {}
func (FloorRead) event()    {}
func (PutAnswered) event()  {}
func (Applied) event()      {}
func (Settled) event()      {}
func (EffectFailed) event() {}

// Effect is what a machine asks for. The effects that one step returns are carried out in order;
// the last one is answered by an event, unless it is Done.
type Effect interface{ effect() }

// The effects.
type (
	// GetEntry asks for entry Number: from its own object when Span is Single, else from the range
	// of that span which holds it. A range is kept until another span or range is asked for: it is
	// not read anew for each of its entries. The entry is opened wholly each time, as a header
	// alone does not prove the hash. Ahead is how many entries after this one will probably be
	// asked for next.
	GetEntry struct {
		Number uint64
		Span   uint64
		Ahead  int
	}
	// GetFloor asks for floor K.
	GetFloor struct{ K uint64 }
	// Put asks to create entry Number with the body of the operation.
	Put struct {
		Number   uint64
		Previous Hash
	}
	// Wait asks for a pause, longer with each try from 1 on. It is not answered.
	Wait struct{ Tries int }
	// Accept asks to keep the entry that was read last for the next Apply. It is not answered.
	Accept struct{}
	// Apply asks to apply the accepted entries, and to make the position behind them durable.
	Apply struct{ At Position }
	// Settle asks to make durable that the body is in the log, at the position At. Lost is how many
	// numbers others took.
	Settle struct {
		At      Position
		Created Time
		Lost    int
	}
	// Done ends the operation. Number is that of the entry which is Bad, Broken or a Hole; At and
	// Created say where the body was Completed or Landed.
	Done struct {
		Outcome Outcome
		Number  uint64
		At      Position
		Created Time
	}
)

func (GetEntry) effect() {}
func (GetFloor) effect() {}
func (Put) effect()      {}
func (Wait) effect()     {}
func (Accept) effect()   {}
func (Apply) effect()    {}
func (Settle) effect()   {}
func (Done) effect()     {}
