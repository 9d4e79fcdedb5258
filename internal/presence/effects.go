package presence

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
)

// do does the effects of a step. When one fails, do runs its undo effects and skips the rest.
func (p *Pages[S, H]) do(ctx context.Context, st step, at *place[S, H]) error {
	for _, e := range st.effects {
		err := p.effect(ctx, at, e)
		if err == nil {
			continue
		}
		for _, back := range undo[st.next][e] {
			err = errors.Join(err, p.effect(ctx, at, back))
		}
		return err
	}
	return nil
}

func (p *Pages[S, H]) effect(ctx context.Context, at *place[S, H], e effect) error {
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
	case start, startNew:
		shared, err := p.host.Start(ctx, page, at.name)
		at.shared = shared
		return err
	case record, rewrite:
		if at.absence != nil {
			return p.writeAbsence(page, at.absence)
		}
		// The page leaves no record, and an older one goes.
		return errors.Join(p.dir.RemoveAbsence(page), fs.SyncDir(filepath.Dir(dir)))
	case syncNames:
		return fs.SyncDir(filepath.Dir(dir))
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

// writeAbsence writes {page}.away. On a full disk the page first gives up its index, which is made
// again if the page stays: removing a page needs no room.
func (p *Pages[S, H]) writeAbsence(page layout.Page, a *layout.Absence) error {
	err := p.dir.WriteAbsence(page, a)
	if !errors.Is(err, base.ErrNoSpace) {
		return err
	}
	if err := p.dir.FS.RemoveAll(filepath.Join(p.dir.PageDir(page), "page.db")); err != nil {
		return err
	}
	return p.dir.WriteAbsence(page, a)
}
