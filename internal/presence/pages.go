package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
)

// Kind is the purpose of a handle. A greater kind is a stronger use of the page.
type Kind uint8

// The kinds of handles.
const (
	Nobody  Kind = iota // there is none
	ForSync             // holds the page, which must be here, open to sync it; Take does not wait for it
	ForLook             // an inspection by the repository; the page must be here
	ForUse              // an app's use; the page is made or fetched if necessary
)

// Fill makes a page in dir from the bucket's content, completely or not at all. dir may have
// leftovers of another attempt. a is the record of the page's absence.
type Fill func(ctx context.Context, page layout.Page, dir string, a *layout.Absence) error

// Host opens, closes and fills pages. S is the state shared by the handles of a page, H a handle.
// All functions but Handle may block; they are called without locks, one at a time for each page.
type Host[S any, H comparable] struct {
	Dir    layout.Dir
	Logger *slog.Logger
	// Fill fetches evicted pages that are opened.
	Fill Fill
	// Enroll records that a page is about to be opened by a human name, or "".
	Enroll func(page layout.Page, name string) error
	// Create makes an empty page, durably.
	Create func(ctx context.Context, page layout.Page) error
	// Start opens the page, and Stop closes it after its last handle.
	Start func(ctx context.Context, page layout.Page, name string) (S, error)
	Stop  func(shared S, last H) error
	// Handle returns a new handle. It must not block, nor call Pages.
	Handle func(shared S, kind Kind) H
	// GiveUp closes a ForSync handle, also when another caller closes it at the same time. It calls
	// Drop.
	GiveUp func(H) error
	// Left is called when a page has left, before any other caller can have it. a is its record, or
	// nil.
	Left func(page layout.Page, a *layout.Absence)
}

// Pages are the pages of a repository. They are safe for concurrent use.
type Pages[S any, H comparable] struct {
	host Host[S, H]
	dir  layout.Dir // of host
	gone atomic.Uint64

	mu     sync.Mutex
	places map[layout.Page]*place[S, H] // guarded by mu; of pages not at rest
}

// place is the state of a page that is not at rest. Its fields are guarded by Pages.mu; the
// goroutine that made the last step also reads page, name, absence and shared without it.
type place[S any, H comparable] struct {
	page    layout.Page
	known   bool // state and absence are read from the disk
	state   State
	changed chan struct{} // closed when known or state changes
	absence *layout.Absence
	fill    Fill
	name    string
	gone    string // {page}.gone-n
	shared  S
	handles map[H]Kind
	opener  Kind
	wanted  bool // a caller waits to use the page
}

// New returns the pages of a repository.
func New[S any, H comparable](host Host[S, H]) *Pages[S, H] {
	return &Pages[S, H]{host: host, dir: host.Dir, places: map[layout.Page]*place[S, H]{}}
}

// Open returns a new handle of a page. name is its human name, or "". ctx governs only the call.
// Errors: base.ErrNotFound (the kind needs the page here), those of Host and of ctx.
func (p *Pages[S, H]) Open(ctx context.Context, page layout.Page, name string, kind Kind) (h H, err error) {
	e := look
	if kind == ForUse {
		e = use
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at, st, err := p.enter(ctx, page, e)
	if err == nil && st.answer == move {
		at.name, at.opener = name, kind
		err = p.advance(ctx, at, st, e)
	}
	if err == nil && at.state != Open {
		err = base.ErrNotFound
	}
	if err == nil {
		h = p.host.Handle(at.shared, kind)
		at.handles[h] = kind
	}
	return h, err
}

// Drop removes a handle and closes the page after the last one. last reports that this was the
// last. Errors: those of Host.Stop.
func (p *Pages[S, H]) Drop(page layout.Page, h H) (last bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.places[page]
	delete(at.handles, h)
	if len(at.handles) > 0 {
		return false, nil
	}
	return true, p.closeLast(at, h)
}

func (p *Pages[S, H]) closeLast(at *place[S, H], h H) error {
	st := next(at.state, last)
	p.turn(at, st.next)
	p.mu.Unlock()
	err := p.host.Stop(at.shared, h)
	p.mu.Lock()
	if at.state == Closing { // not Leaving: then Take's caller has the page
		p.turn(at, next(at.state, done).next)
	}
	return err
}

// ErrInUse reports a page that another caller uses, or waits to use.
var ErrInUse = errors.New("the page is in use")

// Leave removes a page that the caller has exclusively, and returns when it has left. a is the
// record to keep of it; nil keeps nothing. Afterwards the caller no longer has the page. Errors:
// ErrInUse (a caller waits to use it), those of the file system. After an error the page stays,
// unless only its leftovers could not be removed.
type Leave func(ctx context.Context, a *layout.Absence) error

// Take calls fn with exclusive access to the page, which is closed and here; ForSync handles are
// closed first. Callers that open the page wait. fn may remove the page. Errors: ErrInUse,
// base.ErrNotFound (it is not here), those of fn, of ctx, and of closing handles.
func (p *Pages[S, H]) Take(ctx context.Context, page layout.Page, fn func(Leave) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, st, err := p.enter(ctx, page, take)
	if err != nil {
		return err
	}
	switch {
	case at.state == Open && at.use() <= ForSync:
		st = next(Open, giveUp)
	case at.state == Open:
		return ErrInUse
	case st.answer != move:
		return base.ErrNotFound
	}
	p.turn(at, st.next)
	handles := slices.Collect(maps.Keys(at.handles))
	p.mu.Unlock()
	for _, h := range handles {
		err = errors.Join(err, p.host.GiveUp(h))
	}
	if err == nil {
		err = fn(func(ctx context.Context, a *layout.Absence) error { return p.leave(ctx, at, a) })
	}
	p.mu.Lock()
	if at.state == Leaving {
		p.turn(at, next(at.state, release).next)
	}
	return err
}

// leave is Leave of a place.
func (p *Pages[S, H]) leave(ctx context.Context, at *place[S, H], absence *layout.Absence) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.wanted {
		return ErrInUse
	}
	at.absence = absence
	return p.advance(ctx, at, next(at.state, leave), leave)
}

// Fetch downloads an evicted page with fill. It does nothing when the page is here, or was not
// evicted. Errors: those of fill and of the file system.
func (p *Pages[S, H]) Fetch(ctx context.Context, page layout.Page, fill Fill) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, st, err := p.enter(ctx, page, fetch)
	if err == nil && st.answer == move {
		at.fill = fill
		err = p.advance(ctx, at, st, fetch)
	}
	return err
}

// Forget marks an evicted page as deleted. Errors: base.ErrNotFound (it was not evicted), those of
// the file system.
func (p *Pages[S, H]) Forget(ctx context.Context, page layout.Page) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, st, err := p.enter(ctx, page, forget)
	if err != nil {
		return err
	}
	if st.answer != move {
		return base.ErrNotFound
	}
	deleted := *at.absence
	deleted.Kind = layout.Deleted
	at.absence = &deleted
	return p.advance(ctx, at, st, forget)
}

// Where returns the state of a page and, when it is not here, its record.
func (p *Pages[S, H]) Where(page layout.Page) (State, *layout.Absence, error) {
	p.mu.Lock()
	if at := p.places[page]; at != nil && at.known && !at.state.resting() {
		defer p.mu.Unlock()
		if at.state == Coming {
			return Coming, at.absence, nil
		}
		return at.state, nil, nil
	}
	p.mu.Unlock()
	return p.atRest(page)
}

// Stores returns the shared state of all open pages, in any order. With wait it also waits for
// pages that are being opened.
func (p *Pages[S, H]) Stores(wait bool) (all []S) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range slices.Collect(maps.Values(p.places)) {
		for wait && at.state == Opening {
			changed := at.changed
			p.mu.Unlock()
			<-changed
			p.mu.Lock()
		}
		if at.state == Open {
			all = append(all, at.shared)
		}
	}
	return all
}

// Handles returns the handles of a page, in any order.
func (p *Pages[S, H]) Handles(page layout.Page) []H {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.places[page]; at != nil {
		return slices.Collect(maps.Keys(at.handles))
	}
	return nil
}

// AllHandles returns the handles of all pages, in any order.
func (p *Pages[S, H]) AllHandles() (all []H) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.places {
		all = slices.AppendSeq(all, maps.Keys(at.handles))
	}
	return all
}

// UseOf returns the greatest kind of the page's handles, including those being opened.
func (p *Pages[S, H]) UseOf(page layout.Page) Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch at := p.places[page]; {
	case at == nil:
		return Nobody
	case at.state == Opening:
		return max(at.opener, at.use())
	case at.state == Open:
		return at.use()
	}
	return Nobody
}

// use returns the greatest kind of the handles.
func (at *place[S, H]) use() (most Kind) {
	for _, k := range at.handles {
		most = max(most, k)
	}
	return most
}

// Wait waits until all pages are at rest. No handle may be made any more.
func (p *Pages[S, H]) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.places) > 0 {
		for _, at := range p.places {
			changed := at.changed
			p.mu.Unlock()
			<-changed
			p.mu.Lock()
			break
		}
	}
}

// enter finds the place of a page and the step for an event, and waits while the answer is wait.
// The caller holds mu, and makes the step before it unlocks.
func (p *Pages[S, H]) enter(ctx context.Context, page layout.Page, e event) (*place[S, H], step, error) {
	for {
		at := p.places[page]
		if at == nil {
			return p.find(page, e)
		}
		st := queued
		if at.known {
			st = next(at.state, e)
		}
		if st.answer != wait {
			return at, st, nil
		}
		at.wanted = at.wanted || e == use
		changed := at.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, denied, err
		}
	}
}

// find makes the place of a page that is at rest. When the event does not fit, it removes the
// place.
func (p *Pages[S, H]) find(page layout.Page, e event) (*place[S, H], step, error) {
	at := &place[S, H]{page: page, changed: make(chan struct{}), handles: map[H]Kind{}, fill: p.host.Fill}
	p.places[page] = at
	p.mu.Unlock()
	state, absence, err := p.atRest(page)
	p.mu.Lock()
	at.known, at.absence = true, absence
	st := next(state, e)
	if at.state = state; err != nil || st.answer != move {
		p.turn(at, state)
	}
	return at, st, err
}

// turn sets the next state of a page and wakes waiters. A page at rest has no place.
func (p *Pages[S, H]) turn(at *place[S, H], s State) {
	at.state = s
	if s.resting() {
		delete(p.places, at.page)
	}
	if s == Open {
		at.wanted = false
	}
	close(at.changed)
	at.changed = make(chan struct{})
}

// advance makes a step, and further steps until the event is answered. The caller holds mu, which
// is released during effects.
func (p *Pages[S, H]) advance(ctx context.Context, at *place[S, H], st step, e event) error {
	for {
		p.turn(at, st.next)
		p.mu.Unlock()
		err := p.do(ctx, st, at)
		p.mu.Lock()
		came := done
		if err != nil {
			came = failed
		}
		s := next(at.state, came).next
		if e == use && s == Here && err == nil { // fetched, and still to be opened
			st = next(s, e)
			continue
		}
		p.turn(at, s)
		return err
	}
}

// atRest returns the state that the files of a resting page record (A1). While another process may
// change them it looks again, since the page may come or leave between two looks.
func (p *Pages[S, H]) atRest(page layout.Page) (State, *layout.Absence, error) {
	for range 3 {
		if here, err := p.dir.HasPage(page); err != nil || here {
			return Here, nil, err
		}
		a, err := p.readAbsence(page)
		switch {
		case err != nil:
			return Absent, nil, err
		case a != nil && a.Kind == layout.Evicted:
			return Away, a, nil
		case a != nil:
			return Absent, a, nil
		}
	}
	return Absent, nil, nil
}

// readAbsence returns why a page without a directory is away; nil when unknown. A damaged record
// counts as an eviction without details, so that the page is not taken for a new one.
func (p *Pages[S, H]) readAbsence(page layout.Page) (*layout.Absence, error) {
	a, err := p.dir.ReadAbsence(page)
	if errors.Is(err, base.ErrCorrupt) {
		p.host.Logger.Warn("what is known of an evicted page is damaged", "ledger", page.Ledger, "page", fmt.Sprintf("%x", page.ID), "error", err)
		return &layout.Absence{Kind: layout.Evicted}, nil
	}
	return a, err
}

// Gone is a page that is not here, and its record.
type Gone struct {
	Page layout.Page
	*layout.Absence
}

// Gone returns the known pages that are not here, sorted. Errors: those of the file system,
// *base.CorruptError, *base.FormatError.
func (p *Pages[S, H]) Gone(ctx context.Context) (all []Gone, err error) {
	pages, err := p.dir.AwayPages()
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		here, err := p.dir.HasPage(page)
		if err != nil {
			return nil, err
		}
		if here {
			continue // A1
		}
		a, err := p.readAbsence(page)
		if err != nil {
			return nil, err
		}
		if a != nil {
			all = append(all, Gone{page, a})
		}
	}
	return all, nil
}
