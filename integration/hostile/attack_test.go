package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// maxRequests is how often one bad object may be asked for by one call of Sync.
// It is read again before it is believed to be bad, and a device that begins an epoch looks before
// each step whether another one has done so.
const maxRequests = 16

// attack is a bucket at the end of a scene that is not as it was left.
type attack struct {
	s     *scene
	state mem.State
	lies  lies
	// object is the name of the object that is bad, "" for the service.
	object string
	// withheld says that something is not there: an older state, or a page that is missing, is no
	// lie that a device could notice.
	withheld bool
	// back has the owner show the state before the attack again to a device that has begun an epoch
	// meanwhile; else another device comes that has everything.
	back bool
}

// newDevice has a new device come, judges what it has then, and whether it is well once the bucket
// is.
func (a *attack) newDevice(t testing.TB) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := newOwner(a.state)
	o.show(a.state, a.lies)
	r, err := a.s.clone(ctx, o)
	if r == nil {
		a.judgeError(t, "clone", err)
		o.show(a.s.end, lies{})
		if r, healed := a.s.clone(ctx, o); healed != nil {
			t.Errorf("clone of a healed bucket: %v", healed)
		} else {
			a.healed(t, r)
			closeIt(t, r)
		}
		return err
	}
	defer closeIt(t, r)
	return a.judge(t, "clone", o, r, err)
}

// oldDevice is newDevice for one that has read the bucket at the middle of the scene.
func (a *attack) oldDevice(t testing.TB) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := newOwner(a.s.mid)
	r, err := a.s.clone(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	o.show(a.state, a.lies)
	_, err = r.Sync(ctx)
	return a.judge(t, "sync", o, r, err)
}

// strike has a new device and an old one meet the bucket, and returns what they say. In a sample
// the second one is left out when the first has noticed.
func (a *attack) strike(t testing.TB, turn int) (noticed bool, said string) {
	t.Helper()
	var fresh, old error
	a.back = turn/2%2 == 1
	if turn%2 == 0 {
		fresh = a.newDevice(t)
	}
	if everything() || fresh == nil {
		old = a.oldDevice(t)
	}
	if turn%2 == 1 && (everything() || old == nil) {
		fresh = a.newDevice(t)
	}
	return fresh != nil || old != nil, fmt.Sprintf("new device: %v; old device: %v", fresh, old)
}

func closeIt(t testing.TB, r *ledger.Repository) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// judge looks at a device after it has met the bucket, and again when the bucket is well.
func (a *attack) judge(t testing.TB, what string, o *owner, r *ledger.Repository, err error) error {
	t.Helper()
	if n := o.asked(a.object); n > maxRequests {
		t.Errorf("%s: %s was asked for %d times", what, a.object, n)
	}
	if err != nil {
		a.judgeError(t, what, err)
	}
	told := o.mended()
	sealedLater := strings.HasPrefix(a.object, wire.KeysPrefix) && strings.Contains(told, "unknown key") // damage, to who never had the ring
	if told != "" && a.object != "" && !strings.Contains(told, a.object) && !sealedLater {
		t.Errorf("%s: the device has begun an epoch, and does not name %s: %s", what, a.object, told)
	}
	all := a.content(t, what, r, err == nil && !a.withheld && told == "")
	if bystander := targetLedger + "/" + otherName; !slices.Equal(all[bystander], a.s.heads[bystander]) && a.othersGoOn(err) {
		t.Errorf("%s: another page has not gone on: %v, after %v", what, all[bystander], err)
	}
	a.heal(t, what, o, r, err)
	if err == nil && told != "" {
		err = fmt.Errorf("%w: %s", errMended, told)
	}
	return err
}

// errMended says that a device has noticed damage, and has begun an epoch without it: that is told
// in its log, and is no error for who syncs.
var errMended = errors.New("the bucket was mended")

// heal has the bucket be well again, and wants everything on the device then. A device that has not
// begun an epoch finds the state that was attacked. One that has needs others to send what it did
// not have; or it finds that its epoch is gone, which needs the user.
func (a *attack) heal(t testing.TB, what string, o *owner, r *ledger.Repository, before error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	now := o.b.State()
	begun := a.s.epochs(now) != a.s.epochs(a.state)
	if begun && !a.back {
		now = a.s.complete(t, now)
	} else {
		now = a.s.end
	}
	o.show(now, lies{})
	_, err := r.Sync(ctx)
	if begun && a.back && (before == nil || err != nil) { // else it could not enter the epoch that it put
		if !errors.Is(err, ledger.ErrCloudRolledBack) {
			t.Errorf("%s: the epoch of the device is gone: %v", what, err)
		}
		_, err = admin.Reupload(ctx, r)
	}
	if err != nil {
		t.Errorf("%s: sync with a healed bucket: %v, before: %v", what, err, before)
		return
	}
	a.healed(t, r)
}

// epochs returns the numbers of the target's epochs in a state.
func (s *scene) epochs(state mem.State) (all string) {
	b := mem.New(mem.Options{})
	b.Rollback(state)
	for _, n := range b.Names() {
		if strings.HasPrefix(n, s.target.Epochs()) {
			all += n + " "
		}
	}
	return all
}

// complete has a device that knows the end come to a bucket with another epoch, in which nothing is
// damaged any more, and returns what the bucket has then.
func (s *scene) complete(t testing.TB, state mem.State) mem.State {
	t.Helper()
	b := mem.New(mem.Options{})
	b.Rollback(state)
	for n, content := range s.content {
		b.Replace(n, content)
	}
	o := newOwner(s.done)
	r, err := s.clone(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	p := openPage(t, r, targetLedger, targetName)
	if _, err := valuesOf(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	_ = p.Close() // it was only read
	o.show(b.State(), lies{})
	if _, err := r.Sync(t.Context()); err != nil {
		t.Errorf("a device that has everything: %v", err)
	}
	return o.b.State()
}

// othersGoOn reports whether an error leaves other pages alone: all do but those about the bucket
// itself.
func (a *attack) othersGoOn(err error) bool {
	return !strings.HasPrefix(a.object, wire.KeysPrefix) && !errors.Is(err, ledger.ErrNetwork) && !errors.Is(err, fs.ErrPermission) && a.lies.list == nil
}

// judgeError wants an error that names the object and says in which state it is.
func (a *attack) judgeError(t testing.TB, what string, err error) {
	t.Helper()
	clear := false
	for _, target := range []error{ledger.ErrCorrupt, ledger.ErrCloudRolledBack, ledger.ErrCloudReplaced, ledger.ErrUnsupported, ledger.ErrWrongKey,
		ledger.ErrNetwork, fs.ErrPermission, ledger.ErrNotFound} {
		clear = clear || errors.Is(err, target)
	}
	if !clear {
		t.Errorf("%s: an error without a sentinel: %v", what, err)
	}
	if a.object == "" {
		return
	}
	if errors.Is(err, ledger.ErrNetwork) || errors.Is(err, ledger.ErrNotFound) && !a.withheld && !strings.HasPrefix(a.object, wire.KeysPrefix) {
		t.Errorf("%s: an error that is none of the object: %v", what, err)
	}
	named := strings.Contains(err.Error(), a.object)
	if strings.HasPrefix(a.object, wire.KeysPrefix) {
		named = named || strings.Contains(err.Error(), "keyring") || errors.Is(err, ledger.ErrCloudReplaced) || errors.Is(err, ledger.ErrCloudRolledBack) || errors.Is(err, ledger.ErrWrongKey) || errors.Is(err, ledger.ErrNotFound)
	}
	if !named {
		t.Errorf("%s: the error does not name %s: %v", what, a.object, err)
	}
}

// content wants every page of a device in a state that existed, and returns the heads. whole wants
// the newest one, and all values.
func (a *attack) content(t testing.TB, what string, r *ledger.Repository, whole bool) map[string][]ledger.CommitID {
	t.Helper()
	ctx := context.Background()
	infos, err := r.Pages(ctx)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]ledger.CommitID{}
	for _, info := range infos {
		k := info.Ledger + "/" + info.Name
		if err := a.page(ctx, r, info, k, all, whole); err != nil {
			t.Errorf("%s: page %s: %v", what, k, err)
		}
	}
	if whole {
		for k := range a.s.heads {
			if all[k] == nil {
				t.Errorf("%s: without an error page %s is not here", what, k)
			}
		}
	}
	report, err := admin.Check(ctx, r, nil)
	if err != nil || !report.OK() {
		t.Errorf("%s: check: %+v, %v", what, report, err)
	}
	return all
}

func (a *attack) page(ctx context.Context, r *ledger.Repository, info ledger.PageInfo, k string, all map[string][]ledger.CommitID, whole bool) error {
	p, err := r.OpenPage(ctx, info.PageRef)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // it was only read
	if all[k], err = headsOf(ctx, p); err != nil {
		return err
	}
	for _, h := range all[k] {
		if !a.s.known[k][h] {
			return fmt.Errorf("head %s was never written", h.Short())
		}
	}
	if whole && !slices.Equal(all[k], a.s.heads[k]) {
		return fmt.Errorf("without an error the heads are %v, want %v", all[k], a.s.heads[k])
	}
	values, err := valuesOf(ctx, p)
	switch {
	case err != nil && a.object != "" && errors.Is(err, ledger.ErrCorrupt) && strings.Contains(err.Error(), "corrupt pack "+path.Base(a.object)):
		return nil // a lazy value that is bad says so when it is read; the id of a pack is all of its name that is its own
	case err != nil && !a.unreadable(err):
		return fmt.Errorf("read everything: %w", err)
	case err == nil && slices.Equal(all[k], a.s.heads[k]) && !maps.Equal(values, a.s.values[k]):
		return errors.New("values are not what was written")
	}
	return nil
}

// unreadable reports whether err may come of lazy values, when it is the service that lies or an
// object is gone.
func (a *attack) unreadable(err error) bool {
	if a.object != "" {
		return errors.Is(err, ledger.ErrGone)
	}
	return errors.Is(err, ledger.ErrGone) || errors.Is(err, ledger.ErrCloudRolledBack) || errors.Is(err, ledger.ErrCloudReplaced) || errors.Is(err, ledger.ErrNetwork) || errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, ledger.ErrNeedsFetch)
}

// healed wants everything as it was written.
func (a *attack) healed(t testing.TB, r *ledger.Repository) {
	t.Helper()
	well := attack{s: a.s, state: a.s.end}
	well.content(t, "healed", r, true)
}
