package cloudsync

import "context"

// turn is a lock that its holder keeps across I/O.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. The error is the cause of the end of ctx.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		t.give()
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

func (t turn) give() { <-t }
