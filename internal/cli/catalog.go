package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/catalog"
	"github.com/spf13/cobra"
)

// epochFlag is what all verbs of catalogues share.
type epochFlag struct {
	Epoch uint64 `flag:"epoch" usage:"present epoch, in which objects are available or have expired"`
}

// catalogWrite is what verbs have that change a catalogue.
type catalogWrite struct {
	pageArg
	epochFlag
	mergeFlags
}

// catalogRead is what verbs have that read one.
type catalogRead struct {
	pageArg
	epochFlag
	At string `flag:"at" usage:"revision to read (default HEAD)"`
}

// containerFlag is that of verbs that are about one container.
type containerFlag struct {
	Container string `flag:"container" usage:"container in base58 (default: the only one)"`
}

func (a *app) catalogCommand() *cobra.Command {
	return a.group("catalog", a.catalogAdd(), a.catalogFind(), a.catalogLock(), a.catalogRm(), a.catalogLs(), a.catalogCheck(), a.catalogImport(), a.catalogExport())
}

// changeCatalog makes a commit of what fn does with a catalogue. fn returns what was done.
func (a *app) changeCatalog(ctx context.Context, f catalogWrite, how access, fn func(*metabase.Tx) (string, error)) error {
	return a.page(ctx, f.Page, how, func(page *ledger.Page) error {
		var done string
		before, after, err := a.write(ctx, page, "", "", func(tx *ledger.Tx) error {
			t, err := catalog.Write(ctx, tx, f.Epoch)
			if err == nil {
				done, err = fn(t)
			}
			return err
		})
		if err != nil {
			return err
		}
		return a.finish(ctx, page, f.mergeFlags, before, after, done)
	})
}

// readCatalog calls fn with a catalogue.
func (a *app) readCatalog(ctx context.Context, f catalogRead, fn func(*metabase.View) error) error {
	return a.pageAt(ctx, f.Page, fetches, f.At, func(page *ledger.Page, snap *ledger.Snapshot) error {
		v, err := catalog.Read(ctx, snap, f.Epoch)
		if err != nil {
			return err
		}
		return fn(v)
	})
}

// defaultContainer is that of catalogues in which nobody has named another.
var defaultContainer = metabase.ID(sha256.Sum256([]byte("ledger catalogue")))

// containerOf returns the container that a verb is about.
func (f *containerFlag) containerOf(ctx context.Context, v *metabase.View) (metabase.ID, error) {
	if f.Container != "" {
		id, err := metabase.ParseID(f.Container)
		return id, asUsage("--container: ", err)
	}
	all, err := v.Containers(ctx)
	switch {
	case err != nil:
		return metabase.ID{}, err
	case len(all) == 0:
		return defaultContainer, nil
	case len(all) > 1:
		return metabase.ID{}, usagef("the catalogue has %d containers: name one with --container", len(all))
	}
	return all[0].ID, nil
}

// addressOf reads an argument that is an object's id, or its address.
func (f *containerFlag) addressOf(ctx context.Context, v *metabase.View, text string) (metabase.Address, error) {
	if strings.Contains(text, "/") {
		a, err := metabase.ParseAddress(text)
		return a, asUsage("", err)
	}
	id, err := metabase.ParseID(text)
	if err != nil {
		return metabase.Address{}, asUsage("", err)
	}
	container, err := f.containerOf(ctx, v)
	return metabase.Address{Container: container, Object: id}, err
}

type catalogAddFlags struct {
	catalogWrite
	containerFlag
	File       []string `arg:"..."`
	Attributes []string `flag:"attr" usage:"attribute, \x60KEY=VALUE\x60; may be repeated"`
	Owner      string   `flag:"owner" usage:"owner in base58 (default: nobody in particular)"`
	Expires    uint64   `flag:"expires" usage:"last epoch in which the object is available (default: it stays)"`
}

func (a *app) catalogAdd() *cobra.Command {
	return verb(a, "catalog add", catalogAddFlags{}, a.addObject)
}

func (a *app) addObject(ctx context.Context, f catalogAddFlags) error {
	o := &metabase.Object{CreationEpoch: f.Epoch}
	seen := map[string]bool{}
	for _, text := range f.Attributes {
		key, value, ok := strings.Cut(text, "=")
		if !ok || value == "" || key == "" || seen[key] {
			return usagef("--attr %s: want KEY=VALUE, each key once", quoted(text))
		}
		seen[key] = true
		o.Attributes = append(o.Attributes, metabase.Attribute{Key: key, Value: value})
	}
	if f.Owner != "" {
		owner, err := metabase.ParseOwner(f.Owner)
		if err != nil {
			return usagef("--owner: %w", err)
		}
		o.Owner = owner[:]
	}
	var payload io.Reader = strings.NewReader("")
	if len(f.File) == 1 {
		file, err := os.Open(a.path(f.File[0]))
		if err != nil {
			return fmt.Errorf("read payload: %w", err)
		}
		defer file.Close() // only read: nothing is lost when it fails
		payload = file
		if !seen[attributeFileName] {
			o.Attributes = append(o.Attributes, metabase.Attribute{Key: attributeFileName, Value: filepath.Base(f.File[0])})
		}
	}
	hash := sha256.New()
	n, err := io.Copy(hash, interruptible(ctx, payload))
	if err != nil {
		return fmt.Errorf("read payload: %w", err)
	}
	o.PayloadBytes, o.PayloadHash = uint64(n), hash.Sum(nil)
	var id metabase.Address
	err = a.changeCatalog(ctx, f.catalogWrite, creates, func(t *metabase.Tx) (string, error) {
		if o.Container, err = f.containerOf(ctx, &t.View); err != nil {
			return "", err
		}
		if id, err = putNew(ctx, t, o, f.Expires, a.changed("expires")); err != nil {
			return "", err
		}
		a.emitID(id)
		return "added " + id.Object.String(), nil
	})
	return err
}

// attributeFileName is the attribute with the name of a file.
const attributeFileName = "FileName"

// emitID prints the result of a verb that makes an object.
func (a *app) emitID(id metabase.Address) {
	a.print(object{"id", id.Object, "container", id.Container}, "%s\n", id.Object)
}

// putNew makes an object and puts it. An object without owner gets one.
func putNew(ctx context.Context, t *metabase.Tx, o *metabase.Object, expires uint64, hasExpires bool) (metabase.Address, error) {
	o.Major, o.Minor = 2, 17
	if o.Owner == nil {
		nobody := metabase.NewOwner([20]byte{})
		o.Owner = nobody[:]
	}
	if hasExpires {
		o.Attributes = append(o.Attributes, metabase.Attribute{Key: metabase.AttributeExpiration, Value: strconv.FormatUint(expires, 10)})
	}
	b, err := metabase.NewObject(o)
	if err != nil {
		return metabase.Address{}, err
	}
	return t.Put(ctx, b, nil)
}

// namingObject returns an object whose payload names others, of which length and hash alone are
// recorded.
func namingObject(typ metabase.Type, container metabase.ID, epoch uint64, payload []byte) *metabase.Object {
	hash := sha256.Sum256(payload)
	return &metabase.Object{Type: typ, Container: container, CreationEpoch: epoch, PayloadBytes: uint64(len(payload)), PayloadHash: hash[:]}
}

// catalogObjects is what verbs have that are about objects.
type catalogObjects struct {
	catalogWrite
	containerFlag
	IDs []string `arg:"..."`
}

func objectIDs(all []metabase.Address) []metabase.ID {
	return objects(all, func(o metabase.Address) metabase.ID { return o.Object })
}

type catalogLockFlags struct {
	catalogObjects
	Free    bool   `flag:"release" usage:"free what the locks ID lock"`
	Expires uint64 `flag:"expires" usage:"last epoch of the lock (default: until it is freed)"`
}

func (a *app) catalogLock() *cobra.Command {
	return verb(a, "catalog lock", catalogLockFlags{}, func(ctx context.Context, f catalogLockFlags) error {
		return a.changeCatalog(ctx, f.catalogWrite, changes, func(t *metabase.Tx) (string, error) {
			objects, err := a.objects(ctx, t, f.catalogObjects)
			if err != nil {
				return "", err
			}
			if f.Free {
				return freeObjects(ctx, t, objects)
			}
			return a.lockObjects(ctx, t, objects, &f)
		})
	}, excluding("release", "expires"))
}

// objects finds the objects that a verb is about, which have to exist.
func (a *app) objects(ctx context.Context, t *metabase.Tx, f catalogObjects) (all []metabase.Address, err error) {
	for _, text := range f.IDs {
		id, err := f.addressOf(ctx, &t.View, text)
		if err != nil {
			return nil, err
		}
		exists, err := t.Exists(ctx, id, true)
		if _, parts := errors.AsType[*metabase.SplitInfoError](err); !parts && err != nil {
			return nil, err
		} else if !parts && !exists {
			return nil, withHint(classedf(ledger.ErrNotFound, "the catalogue has no object %s", id), "%s", a.command("catalog", "ls", f.Page.text))
		}
		all = append(all, id)
	}
	return all, nil
}

func (a *app) lockObjects(ctx context.Context, t *metabase.Tx, all []metabase.Address, f *catalogLockFlags) (string, error) {
	if slices.ContainsFunc(all, func(o metabase.Address) bool { return o.Container != all[0].Container }) {
		return "", usagef("the objects are in several containers; a lock is for one")
	}
	ids := objectIDs(all)
	lock, err := putNew(ctx, t, namingObject(metabase.Lock, all[0].Container, f.Epoch, metabase.LockPayload(ids)), f.Expires, a.changed("expires"))
	if err == nil {
		err = t.Lock(ctx, lock, ids...)
	}
	if err == nil {
		a.emitID(lock)
	}
	return "locked " + countText(len(ids), "object"), err
}

func freeObjects(ctx context.Context, t *metabase.Tx, locks []metabase.Address) (string, error) {
	freed, err := t.FreeLockedBy(ctx, locks...)
	if err == nil {
		_, err = t.Delete(ctx, locks...)
	}
	return "freed " + countText(len(freed), "object"), err
}

// graveEpochs is how long a grave is kept when nothing else is said.
const graveEpochs = 5

type catalogRmFlags struct {
	catalogObjects
	Expires uint64 `flag:"keep-until" usage:"last epoch of the graves (default: five from now)"`
	Collect bool   `flag:"collect" usage:"delete what was removed or has expired"`
}

func (a *app) catalogRm() *cobra.Command {
	return verb(a, "catalog rm", catalogRmFlags{}, func(ctx context.Context, f catalogRmFlags) error {
		if f.Collect != (len(f.IDs) == 0) {
			return usagef("name the objects, or --collect without any")
		}
		if !a.changed("keep-until") {
			f.Expires = f.Epoch + graveEpochs
		}
		return a.changeCatalog(ctx, f.catalogWrite, changes, func(t *metabase.Tx) (string, error) {
			if f.Collect {
				return collectGarbage(ctx, t, f.Epoch)
			}
			objects, err := a.objects(ctx, t, f.catalogObjects)
			if err != nil {
				return "", err
			}
			return a.removeObjects(ctx, t, objects, &f)
		})
	}, taking(1, maxArguments))
}

func (a *app) removeObjects(ctx context.Context, t *metabase.Tx, all []metabase.Address, f *catalogRmFlags) (string, error) {
	payload := metabase.TombstonePayload(f.Expires, objectIDs(all))
	tombstone, err := putNew(ctx, t, namingObject(metabase.Tombstone, all[0].Container, f.Epoch, payload), f.Expires, true)
	if err == nil {
		_, err = t.Inhume(ctx, tombstone, f.Expires, all...)
	}
	return "removed " + countText(len(all), "object"), err
}

// collectBatch is how many objects are looked up between two deletions.
const collectBatch = 1000

func collectGarbage(ctx context.Context, t *metabase.Tx, epoch uint64) (string, error) {
	var expired []metabase.Address
	for o, err := range t.ExpiredBefore(ctx, epoch) {
		if err != nil {
			return "", err
		}
		expired = append(expired, o.Address)
	}
	if _, err := t.FreeLockedBy(ctx, expired...); err != nil { // of locks whose time is over
		return "", err
	}
	deleted, err := t.Delete(ctx, expired...)
	total := deleted.Stored
	for err == nil {
		var objects []metabase.Address
		if objects, _, err = t.Garbages(ctx, collectBatch); err != nil || len(objects) == 0 {
			break
		}
		deleted, err = t.Delete(ctx, objects...)
		total += deleted.Stored
	}
	graves := 0
	if err == nil {
		graves, err = t.DropExpiredGraves(ctx, epoch)
	}
	return fmt.Sprintf("deleted %s and %s", countText(total, "object"), countText(graves, "grave")), err
}
