package presence

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ledgerd/ledger/internal/layout"
)

// do does the effects of a step that places make together: each for all of them before the next
// one, so that they share the work of syncs. When one fails for a place, what undoes it is done,
// and none after it for that place. It returns the error of each.
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

// doing says in errors what an effect does, where the error does not say it.
var doing = map[effect]string{
	syncRecord: "make it durable why the page is away",
	nameRecord: "make it durable why the page is away",
	setAside:   "rename the directory of the page",
	syncNames:  "make it durable whether the page is here",
	erase:      "remove what is left of the page",
}

// together makes a step of a place beside those that others make at the same time. It waits for
// those that have begun, and goes on with all that came meanwhile.
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

// group are places that make a step together.
type group[S any, H comparable] struct {
	places []*place[S, H]
	errs   []error
	done   chan struct{} // closed when errs are there
}

// syncDir makes the names in the directory of the ledger durable, once for all places of a pass.
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
		if at.absence == nil { // the page leaves nothing behind, nor what was there before
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
