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
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/catalog"
)

// epochFlag is the flag of all verbs of catalogues.
type epochFlag struct {
	Epoch uint64 `flag:"epoch" usage:"present epoch, which decides whether objects have expired"`
}

// catalogWrite has the flags of verbs that change a catalogue.
type catalogWrite struct {
	pageArg
	epochFlag
	mergeFlags
}

// catalogRead has the flags of verbs that read a catalogue.
type catalogRead struct {
	pageArg
	epochFlag
	At string `flag:"at" usage:"revision to read (default HEAD)"`
}

// containerFlag is the flag of verbs on one container.
type containerFlag struct {
	Container string `flag:"container" usage:"container in base58 (default: the only one)"`
}

// changeCatalog commits the changes that fn makes to a catalogue. fn returns a description of them.
func (a *app) changeCatalog(ctx context.Context, f catalogWrite, how access,
	fn func(*metabase.Tx) (string, error)) error {
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
		return a.finish(ctx, page, f.mergeFlags, after, before != after, done)
	})
}

// readCatalog calls fn with a catalogue.
func (a *app) readCatalog(ctx context.Context, f catalogRead, fn func(*metabase.View) error) error {
	return a.pageAt(ctx, f.Page, fetches, f.At, func(page *ledger.Page, snap *ledger.Snapshot) error {
		v, err := catalog.Read(ctx, snap.Reader, f.Epoch)
		if err != nil {
			return err
		}
		return fn(v)
	})
}

// defaultContainer is the container of a catalogue if no verb has named another.
var defaultContainer = metabase.ID(sha256.Sum256([]byte("ledger catalogue")))

// containerOf returns the container of the verb.
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

// addressOf parses an argument that is an object's id or address.
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
	Attributes []string `flag:"attr" usage:"attribute \x60KEY=VALUE\x60; may be repeated"`
	Owner      string   `flag:"owner" usage:"owner in base58 (default: the zero owner)"`
	Expires    uint64   `flag:"expires" usage:"last epoch in which the object is available (default: no limit)"`
}

func (a *app) catalogAdd(ctx context.Context, f catalogAddFlags) error {
	o := &metabase.Object{CreationEpoch: f.Epoch}
	seen := map[string]bool{metabase.AttributeExpiration: a.changed("expires")}
	for _, text := range f.Attributes {
		key, value, ok := strings.Cut(text, "=")
		if !ok || value == "" || key == "" || seen[key] || !utf8.ValidString(text) {
			return usagef("--attr %s: want KEY=VALUE in UTF-8, each key once", quoted(text))
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
		file, err := openFile(ctx, a.path(f.File[0]), os.O_RDONLY)
		if err != nil {
			return fmt.Errorf("read payload: %w", err)
		}
		defer file.Close() // opened for reading: an error loses nothing
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
	return a.changeCatalog(ctx, f.catalogWrite, creates, func(t *metabase.Tx) (string, error) {
		if o.Container, err = f.containerOf(ctx, &t.View); err != nil {
			return "", err
		}
		id, err := putNew(ctx, t, o, f.Expires, a.changed("expires"))
		a.printID(id, err)
		return "added " + id.Object.String(), err
	})
}

// attributeFileName is the attribute with the name of a file.
const attributeFileName = "FileName"

// putNew makes an object and stores it. An object without an owner gets the zero owner.
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

// printID prints the id of a new object, unless err is set.
func (a *app) printID(id metabase.Address, err error) {
	if err == nil {
		a.print(object{"id", id.Object, "container", id.Container}, "%s\n", id.Object)
	}
}

// namingObject returns an object whose payload names other objects. Only the payload's length and
// hash are recorded.
func namingObject(typ metabase.Type, container metabase.ID, epoch uint64, payload []byte) *metabase.Object {
	hash := sha256.Sum256(payload)
	return &metabase.Object{Type: typ, Container: container, CreationEpoch: epoch, PayloadBytes: uint64(len(payload)), PayloadHash: hash[:]}
}

// catalogObjects has the flags and arguments of verbs that change objects.
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
	Free    bool   `flag:"release" usage:"release the locks ID"`
	Expires uint64 `flag:"expires" usage:"last epoch of the lock (default: until it is released)"`
}

func (a *app) catalogLock(ctx context.Context, f catalogLockFlags) error {
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
}

// objects returns the addresses of the objects among the arguments. Each object must exist.
func (a *app) objects(ctx context.Context, t *metabase.Tx, f catalogObjects) (all []metabase.Address, err error) {
	for _, text := range f.IDs {
		id, err := f.addressOf(ctx, &t.View, text)
		if err != nil {
			return nil, err
		}
		exists, err := t.Exists(ctx, id, true)
		switch parts := is[*metabase.SplitInfoError](err); {
		case parts:
		case err != nil:
			return nil, err
		case !exists:
			return nil, withHint(classedf(ledger.ErrNotFound, "the catalogue has no object %s", id), "%s",
				a.command("catalog", "ls", f.Page.text))
		}
		all = append(all, id)
	}
	return all, nil
}

func (a *app) lockObjects(ctx context.Context, t *metabase.Tx, all []metabase.Address,
	f *catalogLockFlags) (string, error) {
	if slices.ContainsFunc(all, func(o metabase.Address) bool { return o.Container != all[0].Container }) {
		return "", usagef("the objects are in several containers; a lock is for one")
	}
	ids := objectIDs(all)
	object := namingObject(metabase.Lock, all[0].Container, f.Epoch, metabase.LockPayload(ids))
	lock, err := putNew(ctx, t, object, f.Expires, a.changed("expires"))
	if err == nil {
		err = t.Lock(ctx, lock, ids...)
	}
	a.printID(lock, err)
	return "locked " + countText(len(ids), "objects"), err
}

func freeObjects(ctx context.Context, t *metabase.Tx, locks []metabase.Address) (string, error) {
	freed, err := t.FreeLockedBy(ctx, locks...)
	if err == nil {
		_, err = t.Delete(ctx, locks...)
	}
	return "released " + countText(len(freed), "objects"), err
}

// graveEpochs is the default number of epochs for which a grave is kept.
const graveEpochs = 5

type catalogRmFlags struct {
	catalogObjects
	Expires uint64 `flag:"keep-until" usage:"last epoch of the graves (default: five from now)"`
	Collect bool   `flag:"collect" usage:"delete removed and expired objects"`
}

func (a *app) catalogRm(ctx context.Context, f catalogRmFlags) error {
	if f.Collect != (len(f.IDs) == 0) {
		return usagef("name objects, or give --collect alone")
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
		payload := metabase.TombstonePayload(f.Expires, objectIDs(objects))
		tombstone, err := putNew(ctx, t, namingObject(metabase.Tombstone, objects[0].Container, f.Epoch, payload), f.Expires, true)
		if err == nil {
			_, err = t.Inhume(ctx, tombstone, f.Expires, objects...)
		}
		return "removed " + countText(len(objects), "objects"), err
	})
}

// collectBatch is the number of objects found between two deletions.
const collectBatch = 1000

func collectGarbage(ctx context.Context, t *metabase.Tx, epoch uint64) (string, error) {
	var garbage []metabase.Address
	err := each(t.ExpiredBefore(ctx, epoch), func(o metabase.Listed) { garbage = append(garbage, o.Address) })
	if err == nil {
		_, err = t.FreeLockedBy(ctx, garbage...) // unlocks the objects of expired locks
	}
	total := 0
	for more := true; more && err == nil; {
		deleted, deleteErr := t.Delete(ctx, garbage...)
		if total, err = total+deleted.Stored, deleteErr; err == nil {
			garbage, _, err = t.Garbages(ctx, collectBatch)
			more = len(garbage) > 0
		}
	}
	graves := 0
	if err == nil {
		graves, err = t.DropExpiredGraves(ctx, epoch)
	}
	return fmt.Sprintf("deleted %s and %s", countText(total, "objects"), countText(graves, "graves")), err
}

type catalogFindFlags struct {
	catalogRead
	containerFlag
	Filters    []string  `arg:"..."`
	Attributes commaList `flag:"attributes" usage:"attributes to print, first that of the first filter"`
}

func (a *app) catalogFind(ctx context.Context, f catalogFindFlags) error {
	q := metabase.Query{Attributes: f.Attributes, Count: metabase.MaxCount}
	var err error
	if q.Filters, err = mapped(f.Filters, parseFilter); err != nil {
		return err
	}
	return a.readCatalog(ctx, f.catalogRead, func(v *metabase.View) error {
		if q.Container, err = f.containerOf(ctx, v); err != nil {
			return err
		}
		err = a.find(ctx, v, q)
		if is[*metabase.QueryError](err) {
			return wrong(err) // the query is wrong, not the stored data
		}
		return err
	})
}

// filterForms are the operators of filters, in the order in which they are tried at one position.
var filterForms = []struct {
	text string
	op   metabase.Op
}{
	{"!=", metabase.NotEqual}, {"^=", metabase.Prefix}, {">=", metabase.GreaterOrEqual}, {"<=", metabase.LessOrEqual},
	{"=", metabase.Equal}, {">", metabase.Greater}, {"<", metabase.Less},
}

func parseFilter(text string) (metabase.Filter, error) {
	if key, ok := strings.CutPrefix(text, "!"); ok && key != "" {
		return metabase.Filter{Key: key, Op: metabase.Absent}, nil
	}
	for i := 1; i < len(text); i++ {
		for _, form := range filterForms {
			if value, ok := strings.CutPrefix(text[i:], form.text); ok {
				return metabase.Filter{Key: text[:i], Op: form.op, Value: value}, nil
			}
		}
	}
	if strings.HasPrefix(text, "$Object:") {
		return metabase.Filter{Key: text, Op: metabase.Flag}, nil
	}
	return metabase.Filter{}, usagef("%s is not a filter, such as KEY=VALUE", quoted(text))
}

func (a *app) find(ctx context.Context, v *metabase.View, q metabase.Query) error {
	for {
		found, cursor, err := v.Search(ctx, q)
		if err != nil {
			return err
		}
		for _, o := range found {
			attributes := map[string]string{}
			for i, attr := range q.Attributes {
				if value := o.Attributes[i]; value != "" {
					attributes[attr] = value
				}
			}
			a.show(object{"id", o.ID, "attributes?", attributes})
		}
		if q.Cursor = cursor; cursor == "" {
			return nil
		}
	}
}

func (a *app) catalogLs(ctx context.Context, f catalogRead) error {
	return a.readCatalog(ctx, f, func(v *metabase.View) error { return a.lsObjects(ctx, v, f.Page.text) })
}

func (a *app) lsObjects(ctx context.Context, v *metabase.View, page string) error {
	for cursor := ""; ; {
		listed, next, err := v.ListWithCursor(ctx, metabase.MaxCount, cursor)
		if errors.Is(err, metabase.ErrEndOfListing) {
			if cursor == "" {
				a.tell("page %s has no catalogue, or an empty one; %s lists its keys", page, a.command("ls", page))
			}
			return nil
		}
		if err != nil {
			return err
		}
		for _, l := range listed {
			if err := a.lsObject(ctx, v, l); err != nil {
				return err
			}
		}
		cursor = next
	}
}

func (a *app) lsObject(ctx context.Context, v *metabase.View, l metabase.Listed) error {
	b, err := v.Stored(ctx, l.Address)
	if err != nil {
		return err
	}
	o, err := metabase.DecodeObject(b)
	if err != nil {
		return &metabase.ObjectError{Op: "list", Address: l.Address, Err: err}
	}
	locked, err := v.IsLocked(ctx, l.Address)
	if err != nil {
		return err
	}
	attributes := map[string]string{}
	for _, at := range o.Attributes {
		attributes[at.Key] = at.Value
	}
	a.show(object{
		"id", o.ID, "container", o.Container, "type", o.Type, "size", size(o.PayloadBytes), "attributes?", attributes, "locked", locked,
	})
	return nil
}

type catalogCheckFlags struct {
	catalogRead
	mergeFlags
	Repair bool `flag:"repair" usage:"correct the rows that follow from objects"`
}

func (a *app) catalogCheck(ctx context.Context, f catalogCheckFlags) error {
	if f.Repair && f.At != "" {
		return usagef("--repair changes the newest commit, so it excludes --at")
	}
	if f.Repair {
		write := catalogWrite{f.pageArg, f.epochFlag, f.mergeFlags}
		err := a.changeCatalog(ctx, write, changes, func(t *metabase.Tx) (string, error) {
			n, err := t.Repair(ctx)
			return "repaired " + countText(n, "rows"), err
		})
		if err != nil {
			return err
		}
	}
	return a.readCatalog(ctx, f.catalogRead, func(v *metabase.View) error { return a.checkCatalog(ctx, v) })
}

func (a *app) checkCatalog(ctx context.Context, v *metabase.View) error {
	n := 0
	err := each(v.Verify(ctx), func(i metabase.Issue) {
		n++
		a.show(object{"bucket", i.Bucket, "key", i.Key, "problem", plain(i.Problem), "derived", i.Derived})
	})
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("the catalogue has %s: %w", countText(n, "wrong rows"), ledger.ErrCorrupt)
	}
	counters, err := v.Counters(ctx)
	if err == nil {
		a.summary("all rows of %s are consistent\n", countText(counters.Physical, "objects"))
	}
	return err
}

type catalogImportFlags struct {
	catalogWrite
	File string `arg:""`
}

func (a *app) catalogImport(ctx context.Context, f catalogImportFlags) error {
	file, err := metabase.OpenFile(ctx, a.path(f.File),
		metabase.FileOptions{Mode: metabase.ReadOnly, Epoch: func() uint64 { return f.Epoch }})
	if err != nil {
		return hintFor(err, ledger.ErrCorrupt, "the file is damaged, or is no metabase: name another copy of it")
	}
	err = file.View(ctx, func(v *metabase.View) error {
		counters, err := v.Counters(ctx)
		if err == nil {
			_, err = a.createForImport(ctx)
		}
		if err != nil {
			return err
		}
		return a.changeCatalog(ctx, f.catalogWrite, creates, func(t *metabase.Tx) (string, error) {
			return fmt.Sprintf("imported %s of version %d", countText(counters.Physical, "objects"), v.Version()), t.Import(ctx, v)
		})
	})
	return errors.Join(err, file.Close())
}

type catalogExportFlags struct {
	catalogRead
	File string `arg:""`
}

func (a *app) catalogExport(ctx context.Context, f catalogExportFlags) error {
	path := a.path(f.File)
	if _, err := os.Lstat(path); err == nil {
		return withHint(classedf(ledger.ErrInvalid, "export to %s: the file exists and is not overwritten", quoted(f.File)),
			"name another file")
	}
	return a.readCatalog(ctx, f.catalogRead, func(v *metabase.View) error {
		err := writeFile(ctx, path, func(f *os.File) error {
			file, err := metabase.OpenFile(ctx, f.Name(), metabase.FileOptions{Epoch: v.Epoch})
			if err == nil {
				err = errors.Join(file.Import(ctx, v), file.Close())
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		return nil
	})
}
