package cloudsync_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// forgeCheckpoint puts an empty checkpoint under the name of a number, of which it says that it is
// that of another entry.
func (p *page) forgeCheckpoint(number, at uint64) {
	t, w := p.d.w.t, p.d.w
	t.Helper()
	var b bytes.Buffer
	sealed, err := seal.NewSealer(w.ring, nil).NewWriter(&b, p.names().CheckpointLabel(number), true)
	if err == nil {
		err = (&format.Checkpoint{At: format.Position{Bucket: format.ID(w.ring.BucketID()), Number: at, Hash: format.Hash{1}}}).EncodeTo(sealed)
	}
	if err == nil {
		err = sealed.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	w.b.Replace(p.names().Checkpoint(number), b.Bytes())
}

// TestCheckpointOfAnotherEntry has a member forge the checkpoint behind which the log goes on: it
// says that it stands for an earlier entry, from which the log leads to it again. Who reads the log
// for an old tree, and who checks the bucket, finds that out.
func TestCheckpointOfAnotherEntry(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	old := a.commit(edit{"old": text("x")})
	sync(t, a)
	for i := range 3 {
		a.commit(edit{"old": text("new"), key(i): noise(uint64(i), 3000)})
		sync(t, a)
	}
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.commit(edit{"more": text("x")})
	sync(t, a)
	b := w.device()
	sync(t, b)
	const number = 4
	floor, err := format.SealFloor(seal.NewSealer(w.ring, nil), a.names(), format.Floor{K: 1, Low: number + 1, Checkpoint: number})
	if err == nil {
		err = w.b.PutIfAbsent(t.Context(), a.names().Floor(1), int64(len(floor)), bytes.NewReader(floor))
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(number) {
		w.remove(a.names().Entry(n + 1))
	}
	b.forgeCheckpoint(number, 1)
	gets := 0
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if gets++; gets > 1000 {
			return base.ErrClosed
		}
		return nil
	})
	if err := b.BuildTree(t.Context(), old.ID); !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrCorrupt) || gets > 1000 {
		t.Errorf("%d requests, %v", gets, err)
	}
}
