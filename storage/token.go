package storage

import "context"

// token is a right that one caller has at a time. It is a channel and not a mutex, so that a wait
// for it can end with a context or be combined with other events. Use newToken.
type token chan struct{}

func newToken() token { return make(token, 1) }

// take waits for the token. It returns nil when the caller has it, else the error of ctx.
func (t token) take(ctx context.Context) error {
	if t.try() {
		return nil
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lock waits for the token without a limit.
func (t token) lock() { t <- struct{}{} }

// try takes the token if it is free.
func (t token) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t token) release() { <-t }
