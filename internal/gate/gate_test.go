package gate_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestClose: Close ends the contexts of the calls that are inside, waits for them, and lets none
// in.
func TestClose(t *testing.T) {
	g := gate.New()
	for range 2 {
		if !g.Enter() || g.Closed() {
			t.Fatal("an open gate lets nobody in")
		}
	}
	closed := make(chan struct{})
	go func() { g.Close(); close(closed) }()
	for range 2 {
		call := g.Call(t.Context())
		<-call.Done()
		select {
		case <-closed:
			t.Fatal("Close did not wait")
		default:
		}
		if err := call.Explain(call.Err()); !errors.Is(err, base.ErrClosed) {
			t.Errorf("the call ends with %v", err)
		}
		call.Release()
		g.Leave()
	}
	<-closed
	if g.Enter() || !g.Closed() {
		t.Error("a closed gate lets somebody in")
	}
}

// TestCall: the context of a call ends with that of its caller, which is not the gate's doing.
func TestCall(t *testing.T) {
	g := gate.New()
	ctx, cancel := context.WithCancel(t.Context())
	call := g.Call(ctx)
	if call.Err() != nil {
		t.Fatal(call.Err())
	}
	done := call.Done()
	cancel()
	<-done
	if err := call.Explain(call.Err()); !errors.Is(err, context.Canceled) || errors.Is(err, base.ErrClosed) {
		t.Errorf("the call ends with %v", err)
	}
	call.Release()
	over := g.Call(t.Context())
	done = over.Done()
	over.Release()
	<-done
	if over.Err() == nil {
		t.Error("a call that is over has no error")
	}
	g.Close()
}
