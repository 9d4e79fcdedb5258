package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/catalog"
	"github.com/spf13/cobra"
)

// catalogFlags are what verbs of catalogues share.
type catalogFlags struct {
	writeFlags
	container, at string
	epoch         uint64
}

func (a *app) catalogCommand() *cobra.Command {
	return a.group("catalog", a.catalogAdd(), a.catalogFind(), a.catalogLock(), a.catalogRm(), a.catalogLs(), a.catalogCheck(), a.catalogImport(), a.catalogExport())
}

// common adds the flags that verbs of catalogues share.
func (f *catalogFlags) common(a *app, cmd *cobra.Command, writes bool) *cobra.Command {
	cmd.Flags().Uint64Var(&f.epoch, "epoch", 0, "present epoch, in which objects are available or have expired")
	if writes {
		f.addNoMerge(cmd)
		return cmd
	}
	cmd.Flags().StringVar(&f.at, "at", "", "revision to read (default HEAD)")
	return cmd
}

func (f *catalogFlags) containerFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.container, "container", "", "container in base58 (default: the only one)")
}

// change makes a commit of what fn does with a catalogue. fn returns what was done.
func (a *app) changeCatalog(ctx context.Context, cmd *cobra.Command, name string, how access, f *catalogFlags, fn func(*metabase.Tx) (string, error)) error {
	return a.page(ctx, cmd, name, how, func(page *ledger.Page) error {
		var done string
		before, after, err := a.write(ctx, page, f.writeFlags, func(tx *ledger.Tx) error {
			t, err := catalog.Write(ctx, tx, f.epoch)
			if err == nil {
				done, err = fn(t)
			}
			return err
		})
		if err != nil {
			return err
		}
		return a.finish(ctx, page, f.writeFlags, before, after, done)
	})
}

// readCatalog calls fn with a catalogue.
func (a *app) readCatalog(ctx context.Context, cmd *cobra.Command, name string, f *catalogFlags, fn func(*metabase.View) error) error {
	return a.pageAt(ctx, cmd, name, fetches, f.at, func(page *ledger.Page, snap *ledger.Snapshot) error {
		v, err := catalog.Read(ctx, snap, f.epoch)
		if err != nil {
			return err
		}
		return fn(v)
	})
}

// defaultContainer is that of catalogues in which nobody has named another.
var defaultContainer = metabase.ID(sha256.Sum256([]byte("ledger catalogue")))

// containerOf returns the container that a verb is about.
func (f *catalogFlags) containerOf(ctx context.Context, cmd *cobra.Command, v *metabase.View) (metabase.ID, error) {
	if f.container != "" {
		id, err := metabase.ParseID(f.container)
		if err != nil {
			return id, usagef(cmd, "--container: %w", err)
		}
		return id, nil
	}
	all, err := v.Containers(ctx)
	switch {
	case err != nil:
		return metabase.ID{}, err
	case len(all) == 0:
		return defaultContainer, nil
	case len(all) > 1:
		return metabase.ID{}, usagef(cmd, "the catalogue has %d containers: name one with --container", len(all))
	}
	return all[0].ID, nil
}

// addressOf reads an argument that is an object's id, or its address.
func (f *catalogFlags) addressOf(ctx context.Context, cmd *cobra.Command, v *metabase.View, text string) (metabase.Address, error) {
	if strings.Contains(text, "/") {
		a, err := metabase.ParseAddress(text)
		if err != nil {
			return a, usagef(cmd, "%w", err)
		}
		return a, nil
	}
	id, err := metabase.ParseID(text)
	if err != nil {
		return metabase.Address{}, usagef(cmd, "%w", err)
	}
	container, err := f.containerOf(ctx, cmd, v)
	return metabase.Address{Container: container, Object: id}, err
}

type catalogAddFlags struct {
	catalogFlags
	owner      string
	attributes []string
	expires    uint64
	typed      bool
}

func (a *app) catalogAdd() *cobra.Command {
	var f catalogAddFlags
	cmd := a.define("catalog add", func(ctx context.Context, cmd *cobra.Command, args []string) error {
		f.typed = cmd.Flags().Changed("expires")
		return a.addObject(ctx, cmd, args, &f)
	})
	f.containerFlag(cmd)
	cmd.Flags().StringArrayVar(&f.attributes, "attr", nil, "attribute, `KEY=VALUE`; may be repeated")
	cmd.Flags().StringVar(&f.owner, "owner", "", "owner in base58 (default: nobody in particular)")
	cmd.Flags().Uint64Var(&f.expires, "expires", 0, "last epoch in which the object is available (default: it stays)")
	return f.common(a, cmd, true)
}

func (a *app) addObject(ctx context.Context, cmd *cobra.Command, args []string, f *catalogAddFlags) error {
	o := &metabase.Object{CreationEpoch: f.epoch}
	seen := map[string]bool{}
	for _, text := range f.attributes {
		key, value, ok := strings.Cut(text, "=")
		if !ok || value == "" || key == "" || seen[key] {
			return usagef(cmd, "--attr %s: want KEY=VALUE, each key once", quoted(text))
		}
		seen[key] = true
		o.Attributes = append(o.Attributes, metabase.Attribute{Key: key, Value: value})
	}
	if f.owner != "" {
		owner, err := metabase.ParseOwner(f.owner)
		if err != nil {
			return usagef(cmd, "--owner: %w", err)
		}
		o.Owner = owner[:]
	}
	var payload io.Reader = strings.NewReader("")
	if len(args) == 2 {
		file, err := os.Open(a.path(args[1]))
		if err != nil {
			return fmt.Errorf("read payload: %w", err)
		}
		defer file.Close() // only read: nothing is lost when it fails
		payload = file
		if !seen[attributeFileName] {
			o.Attributes = append(o.Attributes, metabase.Attribute{Key: attributeFileName, Value: filepath.Base(args[1])})
		}
	}
	hash := sha256.New()
	n, err := io.Copy(hash, interruptible(ctx, payload))
	if err != nil {
		return fmt.Errorf("read payload: %w", err)
	}
	o.PayloadBytes, o.PayloadHash = uint64(n), hash.Sum(nil)
	var id metabase.Address
	err = a.changeCatalog(ctx, cmd, args[0], creates, &f.catalogFlags, func(t *metabase.Tx) (string, error) {
		if o.Container, err = f.containerOf(ctx, cmd, &t.View); err != nil {
			return "", err
		}
		if id, err = putNew(ctx, t, o, f.expires, f.typed); err != nil {
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

type catalogLockFlags struct {
	catalogFlags
	expires uint64
	typed   bool
	free    bool
}

func (a *app) catalogLock() *cobra.Command {
	var f catalogLockFlags
	cmd := a.define("catalog lock", func(ctx context.Context, cmd *cobra.Command, args []string) error {
		f.typed = cmd.Flags().Changed("expires")
		return a.changeCatalog(ctx, cmd, args[0], changes, &f.catalogFlags, func(t *metabase.Tx) (string, error) {
			objects, err := a.objects(ctx, cmd, t, args, &f.catalogFlags)
			if err != nil {
				return "", err
			}
			if f.free {
				return freeObjects(ctx, t, objects)
			}
			return a.lockObjects(ctx, cmd, t, objects, &f)
		})
	})
	f.containerFlag(cmd)
	cmd.Flags().BoolVar(&f.free, "release", false, "free what the locks ID lock")
	cmd.Flags().Uint64Var(&f.expires, "expires", 0, "last epoch of the lock (default: until it is freed)")
	cmd.MarkFlagsMutuallyExclusive("release", "expires")
	return f.common(a, cmd, true)
}

// objects reads the arguments behind the page, which name objects that have to exist.
func (a *app) objects(ctx context.Context, cmd *cobra.Command, t *metabase.Tx, args []string, f *catalogFlags) (all []metabase.Address, err error) {
	for _, text := range args[1:] {
		id, err := f.addressOf(ctx, cmd, &t.View, text)
		if err != nil {
			return nil, err
		}
		exists, err := t.Exists(ctx, id, true)
		if _, parts := errors.AsType[*metabase.SplitInfoError](err); !parts && err != nil {
			return nil, err
		} else if !parts && !exists {
			return nil, withHint(classedf(ledger.ErrNotFound, "the catalogue has no object %s", id), "%s", a.command("catalog", "ls", args[0]))
		}
		all = append(all, id)
	}
	return all, nil
}

func (a *app) lockObjects(ctx context.Context, cmd *cobra.Command, t *metabase.Tx, objects []metabase.Address, f *catalogLockFlags) (string, error) {
	var ids []metabase.ID
	for _, o := range objects {
		if o.Container != objects[0].Container {
			return "", usagef(cmd, "the objects are in several containers; a lock is for one")
		}
		ids = append(ids, o.Object)
	}
	lock, err := putNew(ctx, t, namingObject(metabase.Lock, objects[0].Container, f.epoch, metabase.LockPayload(ids)), f.expires, f.typed)
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
	catalogFlags
	expires uint64
	collect bool
}

func (a *app) catalogRm() *cobra.Command {
	var f catalogRmFlags
	cmd := a.define("catalog rm", func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if f.collect != (len(args) == 1) {
			return usagef(cmd, "name the objects, or --collect without any")
		}
		if !cmd.Flags().Changed("keep-until") {
			f.expires = f.epoch + graveEpochs
		}
		return a.changeCatalog(ctx, cmd, args[0], changes, &f.catalogFlags, func(t *metabase.Tx) (string, error) {
			if f.collect {
				return collectGarbage(ctx, t, f.epoch)
			}
			objects, err := a.objects(ctx, cmd, t, args, &f.catalogFlags)
			if err != nil {
				return "", err
			}
			return a.removeObjects(ctx, t, objects, &f)
		})
	})
	cmd.Args = cobra.MinimumNArgs(1)
	f.containerFlag(cmd)
	cmd.Flags().Uint64Var(&f.expires, "keep-until", 0, "last epoch of the graves (default: five from now)")
	cmd.Flags().BoolVar(&f.collect, "collect", false, "delete what was removed or has expired")
	return f.common(a, cmd, true)
}

func (a *app) removeObjects(ctx context.Context, t *metabase.Tx, objects []metabase.Address, f *catalogRmFlags) (string, error) {
	var ids []metabase.ID
	for _, o := range objects {
		ids = append(ids, o.Object)
	}
	tombstone, err := putNew(ctx, t, namingObject(metabase.Tombstone, objects[0].Container, f.epoch, metabase.TombstonePayload(f.expires, ids)), f.expires, true)
	if err == nil {
		_, err = t.Inhume(ctx, tombstone, f.expires, objects...)
	}
	return "removed " + countText(len(objects), "object"), err
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
