package presence

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ledgerd/ledger/internal/layout"
)

// do does the effects of a step for several places: each effect for all places before the next one,
// to share syncs. When an effect fails for a place, do runs its undo effect and skips the rest for
// that place. It returns one error per place.
func (p *Pages[S, H]) do(ctx context.Context, st step, all ...*place[S, H]) []error {
	errs := make([]error, len(all))
	for _, e := range st.effects {
		synced := map[string]error{} // directories
		for i, at := range all {
			if errs[i] != nil {
				continue
			}
			err := p.effect(ctx, at, e, synced)
			if what, ok := doing[e]; err != nil && ok {
				err = fmt.Errorf("%s: %w", what, err)
			}
			if back, ok := undo[st.next][e]; err != nil && ok {
				err = errors.Join(err, p.effect(ctx, at, back, nil))
			}
			errs[i] = err
		}
	}
	return errs
}

// doing describes an effect for errors that do not name it.
var doing = map[effect]string{
	syncRecord: "make it durable why the page is away",
	nameRecord: "make it durable why the page is away",
	setAside:   "rename the directory of the page",
	syncNames:  "make it durable whether the page is here",
	erase:      "remove what is left of the page",
}

// together makes a step of a place together with other places. It waits for the running group, and
// then runs with all places that joined meanwhile.
func (p *Pages[S, H]) together(ctx context.Context, st step, at *place[S, H]) error {
	p.mu.Lock()
	g, first := p.gathering, p.gathering == nil
	if first {
		g = &group[S, H]{done: make(chan struct{})}
		p.gathering = g
	}
	i := len(g.places)
	g.places = append(g.places, at)
	p.mu.Unlock()
	if !first {
		<-g.done
		return g.errs[i]
	}
	p.leaving.Lock()
	defer p.leaving.Unlock()
	p.mu.Lock()
	p.gathering = nil
	p.mu.Unlock()
	g.errs = p.do(ctx, st, g.places...)
	close(g.done)
	return g.errs[i]
}

// group is a set of places that make a step together.
type group[S any, H comparable] struct {
	places []*place[S, H]
	errs   []error
	done   chan struct{} // closed when errs are set
}

// syncDir makes the names in the ledger's directory durable, once for all places of a pass.
func (p *Pages[S, H]) syncDir(page layout.Page, synced map[string]error) error {
	dir := filepath.Dir(p.dir.PageDir(page))
	err, ok := synced[dir]
	if !ok {
		err = p.dir.FS.SyncDir(dir)
		synced[dir] = err
	}
	return err
}

func (p *Pages[S, H]) effect(ctx context.Context, at *place[S, H], e effect, synced map[string]error) error {
	page, fs := at.page, p.dir.FS
	dir, coming := p.dir.PageDir(page), p.dir.ComingDir(page)
	switch e {
	case fill:
		return at.fill(ctx, page, coming, at.absence)
	case adopt:
		return fs.Rename(coming, dir)
	case discard:
		return fs.RemoveAll(coming)
	case enroll:
		return p.host.Enroll(page, at.name)
	case create:
		return p.host.Create(ctx, page)
	case start:
		shared, err := p.host.Start(ctx, page, at.name)
		at.shared = shared
		return err
	case rewrite:
		return p.dir.WriteAbsence(page, at.absence)
	case record:
		if at.absence == nil { // the page leaves no record, and an older one goes
			return p.dir.RemoveAbsence(page)
		}
		var err error
		at.record, err = p.dir.CreateAbsence(page, at.absence)
		return err
	case syncRecord:
		if at.record == nil {
			return nil
		}
		err := errors.Join(at.record.Sync(), at.record.Close())
		at.record = nil
		return err
	case nameRecord, syncNames:
		return p.syncDir(page, synced)
	case dropRecord:
		return p.dir.RemoveAbsence(page)
	case setAside:
		at.gone = p.dir.GoneDir(page, p.gone.Add(1))
		return fs.Rename(dir, at.gone)
	case takeBack:
		return fs.Rename(at.gone, dir)
	case vanish:
		p.host.Left(page, at.absence)
		return nil
	case erase:
		return fs.RemoveAll(at.gone) // A4
	}
	return nil
}
