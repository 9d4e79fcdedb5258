package pages_test

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/pages"
)

// Person is an object with an index of one field, and one of two.
type Person struct {
	_ struct{} `permazen:"nameAge:name,age"` // a composite index

	Name   string               `permazen:"name,index"`
	Age    int32                `permazen:"age"`
	Boss   permazen.Ref[Person] `permazen:"boss,inverse=nullify"`
	Visits permazen.Counter     `permazen:"visits"`
	Nicks  permazen.Set[string] `permazen:"nicks,index"`
}

// Objects on a page, found by an index.
func ExampleOpen() {
	ctx := context.Background()
	repo, err := ledger.Open(ctx, "", &ledger.Options{InMemory: true})
	check(err)
	defer repo.Close()
	page, err := repo.Page(ctx, "example", "people")
	check(err)

	var models permazen.Models
	people, err := permazen.Define[Person](&models, "Person")
	check(err)
	model, err := models.Model()
	check(err)
	db, err := permazen.New(model, nil)
	check(err)

	page.SetMergeRules(pages.MergeRule([]byte("people/")))
	objects := pages.Open(page, []byte("people/"), db)
	_, err = objects.Update(ctx, func(tx *permazen.Tx) error {
		_, err := people.Create(ctx, tx, &Person{Name: "Ann", Age: 41})
		return err
	})
	check(err)
	err = objects.View(ctx, func(tx *permazen.Tx) error {
		for r, err := range people.Find(ctx, tx, "nameAge", "Ann", int32(41)) {
			if err != nil {
				return err
			}
			p, err := people.Get(ctx, tx, r)
			if err != nil {
				return err
			}
			fmt.Println(p.Name, p.Age)
		}
		return nil
	})
	check(err)
	// Output: Ann 41
}
