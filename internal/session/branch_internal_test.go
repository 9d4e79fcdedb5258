package session

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// B2: what is told late does not take a session back.
func TestSessionsDoNotGoBack(t *testing.T) {
	o := storage.Options{FS: vfs.NewMem(), Dir: "/page", MemoryIndex: index.NewMemory()}
	check(t, storage.Create(t.Context(), o))
	store, err := storage.Open(t.Context(), o)
	check(t, err)
	env := &Env{
		Store: store, Clock: clock.System, Logger: slog.New(slog.DiscardHandler), JournalBytes: 1 << 20,
		Note: func(error) {}, WantMerge: func() {}, HasCloud: func() bool { return false },
	}
	p, q := New(env), New(env)
	defer func() {
		for _, s := range []*Page{p, q} {
			s.Close()
		}
		check(t, store.Close())
	}()
	put := func(s *Page, on commit.ID, value string) commit.ID {
		t.Helper()
		tx, err := s.Begin(t.Context(), on, false)
		check(t, err)
		check(t, tx.Put(t.Context(), []byte("k"), []byte(value), object.Eager))
		id, err := tx.Commit(t.Context())
		check(t, err)
		return id
	}
	on := put(p, commit.ID{}, "0")
	older := put(p, on, "1")
	newer := put(p, older, "2")
	for _, heads := range []int{1, 2} {
		if n := len(store.Heads()); n != heads {
			t.Fatalf("%d heads, want %d", n, heads)
		}
		for _, id := range []commit.ID{older, on} {
			c, err := store.Commit(t.Context(), id)
			check(t, err)
			p.advance(c)
			if got := p.Position().ID; got != newer {
				t.Fatalf("with %d heads the session went back to %s", heads, got.Short())
			}
		}
		if heads == 1 {
			put(q, on, "3")
		}
	}
}
