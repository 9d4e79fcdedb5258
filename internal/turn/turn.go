package turn

import "context"

// Lock is a turn that one caller has at a time. It is a channel and not a mutex, so that a wait for
// it can end with a context or be combined with other events: sending takes the turn, receiving
// gives it back. Use New.
type Lock chan struct{}

// New returns a free Lock.
func New() Lock { return make(Lock, 1) }

// Take waits for the turn. It returns nil when the caller has it, else the error of ctx, also if
// the turn is free then.
func (l Lock) Take(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case l <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Wait waits for the turn without a limit.
func (l Lock) Wait() { l <- struct{}{} }

// Try takes the turn if it is free, and reports whether it was.
func (l Lock) Try() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

// Give gives the turn back. The caller has it.
func (l Lock) Give() { <-l }
