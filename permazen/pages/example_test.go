package pages_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/keys"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/pages"
)

// oldPerson is a person as the first version of an app knows it.
type oldPerson struct {
	_ struct{} `permazen:"nameAge:name,age"`

	Name   string                  `permazen:"name,index"`
	Age    string                  `permazen:"age"`
	Boss   permazen.Ref[oldPerson] `permazen:"boss,inverse=nullify"`
	Visits permazen.Counter        `permazen:"visits"`
	Nicks  permazen.Set[string]    `permazen:"nicks,index"`
}

// newPerson has the age as a number, and an address.
type newPerson struct {
	_ struct{} `permazen:"nameAge:name,age"`

	Name   string                  `permazen:"name,index"`
	Age    int32                   `permazen:"age"`
	Email  string                  `permazen:"email,index"`
	Boss   permazen.Ref[newPerson] `permazen:"boss,inverse=nullify"`
	Visits permazen.Counter        `permazen:"visits"`
	Nicks  permazen.Set[string]    `permazen:"nicks,index"`
}

// Two devices, of which one has a newer version of the app, change the same objects apart and come
// together.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ledger-example-")
	check(err)
	defer os.RemoveAll(dir)
	key := filepath.Join(dir, "key")
	check(keys.CreateFile(key, nil))
	cloud := &ledger.Cloud{URL: "dir:" + filepath.Join(dir, "bucket"), KeyFile: key}

	var first, second permazen.Models
	oldPeople, err := permazen.Define[oldPerson](&first, "Person")
	check(err)
	newPeople, err := permazen.Define[newPerson](&second, "Person")
	check(err)
	oldDB := database(&first, nil)
	newDB := database(&second, &permazen.Options{Migrate: func(ctx context.Context, m *permazen.Migration) error {
		var age int32
		if s, ok := m.Old["age"].(string); ok {
			fmt.Sscan(s, &age)
		}
		return m.Tx.Set(ctx, m.ID, "age", age)
	}})

	laptop, closeLaptop := open(ctx, cloud, oldDB)
	defer closeLaptop()
	var ann, bob permazen.Ref[oldPerson]
	_, err = laptop.Update(ctx, func(tx *permazen.Tx) (err error) {
		if ann, err = oldPeople.Create(ctx, tx, &oldPerson{Name: "Ann", Age: "41", Nicks: permazen.SetOf("A")}); err != nil {
			return err
		}
		bob, err = oldPeople.Create(ctx, tx, &oldPerson{Name: "Bob", Age: "30", Boss: ann, Visits: 10})
		return err
	})
	check(err)
	check(laptop.Sync(ctx))
	phone, closePhone := open(ctx, cloud, newDB)
	defer closePhone()

	// The laptop goes on with the old schema, while the phone migrates to the new one.
	_, err = laptop.Update(ctx, func(tx *permazen.Tx) error {
		return oldPeople.Update(ctx, tx, bob, func(p *oldPerson) error {
			p.Name, p.Visits = "Robert", p.Visits+2
			p.Nicks = permazen.SetOf("Bob")
			return nil
		})
	})
	check(err)
	_, err = phone.Update(ctx, func(tx *permazen.Tx) error {
		if _, err := tx.MigrateAll(ctx); err != nil {
			return err
		}
		err := newPeople.Update(ctx, tx, permazen.Ref[newPerson](bob), func(p *newPerson) error {
			p.Age, p.Email, p.Visits = p.Age+1, "bob@example.com", p.Visits+5
			p.Nicks = permazen.SetOf("Bobby")
			return nil
		})
		if err != nil {
			return err
		}
		_, err = tx.Delete(ctx, ann.ID)
		return err
	})
	check(err)
	meetAgain(ctx, laptop, phone, laptop)

	check(phone.View(ctx, func(tx *permazen.Tx) error {
		for r, err := range newPeople.Find(ctx, tx, "nameAge", "Robert", int32(31)) {
			if err != nil {
				return err
			}
			p, err := newPeople.Get(ctx, tx, r)
			if err != nil {
				return err
			}
			fmt.Println(p.Name, p.Age, p.Email, p.Visits, p.Nicks.Has("Bob"), p.Nicks.Has("Bobby"), p.Boss.IsNull())
		}
		return nil
	}))
	// Output: Robert 31 bob@example.com 17 true true true
}

// meetAgain syncs and merges one device after another.
func meetAgain(ctx context.Context, devices ...*exampleDevice) {
	for _, d := range devices {
		check(d.Sync(ctx))
		_, err := d.page.Merge(ctx)
		check(err)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func database(models *permazen.Models, o *permazen.Options) *permazen.DB {
	m, err := models.Model()
	check(err)
	db, err := permazen.New(m, o)
	check(err)
	return db
}

// exampleDevice is a database on the page of a device.
type exampleDevice struct {
	*pages.DB
	page *ledger.Page
}

func (d *exampleDevice) Sync(ctx context.Context) error { return d.page.Sync(ctx) }

func open(ctx context.Context, cloud *ledger.Cloud, db *permazen.DB) (*exampleDevice, func()) {
	prefix := []byte("people/")
	rules := []ledger.MergeRule{pages.MergeRule(prefix)}
	repo, err := ledger.Open(ctx, "", &ledger.Options{
		InMemory: true, Sync: ledger.SyncOptions{Manual: true},
		ManualMerge: true, MergeRules: func(string, ledger.PageID) []ledger.MergeRule { return rules },
	})
	check(err)
	_, err = repo.SetCloud(ctx, cloud)
	check(err)
	_, err = repo.Sync(ctx)
	check(err)
	page, err := repo.Page(ctx, "app", "objects")
	check(err)
	return &exampleDevice{pages.Open(page, prefix, db), page}, func() { check(repo.Close()) }
}
