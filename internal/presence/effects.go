package presence

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// do does the effects of the step that a place is making. When one fails, what undoes it is done,
// and none after it.
func (p *Pages[S, H]) do(ctx context.Context, at *place[S, H], st step) error {
	for _, e := range st.effects {
		err := p.effect(ctx, at, e)
		if err == nil {
			continue
		}
		if back, ok := undo[st.next][e]; ok {
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
	case start:
		shared, err := p.host.Start(ctx, page, at.name)
		at.shared = shared
		return err
	case record:
		if at.absence == nil { // the page leaves nothing behind, nor what was there before
			return p.dir.RemoveAbsence(page)
		}
		return p.dir.WriteAbsence(page, at.absence)
	case dropRecord:
		return p.dir.RemoveAbsence(page)
	case setAside:
		at.gone = p.dir.GoneDir(page, p.gone.Add(1))
		if err := fs.Rename(dir, at.gone); err != nil {
			return fmt.Errorf("rename the directory of the page: %w", err)
		}
		return nil
	case takeBack:
		return fs.Rename(at.gone, dir)
	case syncNames:
		if err := fs.SyncDir(filepath.Dir(dir)); err != nil {
			return fmt.Errorf("make it durable whether the page is here: %w", err)
		}
		return nil
	case vanish:
		p.host.Left(page, at.absence)
		return nil
	case erase:
		if err := fs.RemoveAll(at.gone); err != nil { // A4
			return fmt.Errorf("remove what is left of the page: %w", err)
		}
		return nil
	}
	return nil
}
