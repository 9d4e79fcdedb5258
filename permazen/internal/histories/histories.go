package histories

import (
	"context"
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen"
)

// person is the XML of a type. %s stands for the items that differ between schemas.
const person = `<ObjectType name="Person">
  <SimpleField name="name" encoding="urn:fdc:permazen.io:2020:String" indexed="true"/>
  <ReferenceField name="boss" inverseDelete="EXCEPTION"/>
  <ReferenceField name="owner" inverseDelete="DELETE"/>
  <ReferenceField name="pet" inverseDelete="IGNORE"/>
  <CounterField name="visits"/>
  <SetField name="nick"><SimpleField encoding="urn:fdc:permazen.io:2020:String" indexed="true"/></SetField>
  <SetField name="links"><ReferenceField inverseDelete="NULLIFY"/></SetField>
  <ListField name="log"><SimpleField encoding="urn:fdc:permazen.io:2020:int" indexed="true"/></ListField>
  <ListField name="friends"><ReferenceField inverseDelete="REMOVE"/></ListField>
  <MapField name="owes"><ReferenceField inverseDelete="REMOVE"/><SimpleField encoding="urn:fdc:permazen.io:2020:int" indexed="true"/></MapField>
  %s
 </ObjectType>`

const house = `<ObjectType name="House"><SimpleField name="name" encoding="urn:fdc:permazen.io:2020:String" indexed="true"/></ObjectType>`

// Models returns XML documents of schemas that share types and fields.
func Models() []string {
	limited := `<ReferenceField name="spouse" inverseDelete="NULLIFY"><ObjectTypes><ObjectType name="Person"/></ObjectTypes></ReferenceField>`
	mood := `<EnumField name="mood" indexed="true"><Identifier>HAPPY</Identifier><Identifier>SAD</Identifier></EnumField>`
	one := limited + mood + `<SimpleField name="age" encoding="urn:fdc:permazen.io:2020:int"/>
	  <CompositeIndex name="nameAge"><Field name="name"/><Field name="age"/></CompositeIndex>
	  <CompositeIndex name="moodSpouse"><Field name="mood"/><Field name="spouse"/></CompositeIndex>`
	two := limited + mood + `<SimpleField name="age" encoding="urn:fdc:permazen.io:2020:long"/><CounterField name="calls"/>
	  <SimpleField name="extra" encoding="urn:fdc:permazen.io:2020:String" indexed="true"/>
	  <CompositeIndex name="nameExtra"><Field name="name"/><Field name="extra"/></CompositeIndex>`
	three := `<ReferenceField name="spouse" inverseDelete="NULLIFY"/><SimpleField name="age" encoding="urn:fdc:permazen.io:2020:int"/>
	  <EnumField name="mood"><Identifier>SAD</Identifier></EnumField>
	  <CompositeIndex name="moodAge"><Field name="mood"/><Field name="age"/></CompositeIndex>`
	car := `<ObjectType name="Car"><ReferenceField name="owner" inverseDelete="DELETE" forwardDelete="true"/></ObjectType>`
	var all []string
	for _, x := range []string{one, two} {
		all = append(all, "<Schema>"+fmt.Sprintf(person, x)+house+"</Schema>")
	}
	return append(all, "<Schema>"+fmt.Sprintf(person, three)+house+car+"</Schema>")
}

// object draws an object, or the zero id when there is none.
func object(ctx context.Context, rt *rapid.T, tx *permazen.Tx, types ...string) (permazen.ObjID, error) {
	var ids []permazen.ObjID
	for _, name := range types {
		all, err := tx.Objects(name)
		if errors.Is(err, permazen.ErrNoType) {
			continue
		}
		for id, err := range permazen.Each(ctx, all) {
			if err != nil {
				return permazen.ObjID{}, err
			}
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return permazen.ObjID{}, nil
	}
	return rapid.SampledFrom(ids).Draw(rt, "object"), nil
}

// Operate performs one random operation in a transaction.
func Operate(ctx context.Context, rt *rapid.T, tx *permazen.Tx) error {
	op := rapid.IntRange(0, 21).Draw(rt, "operation")
	if op < 4 {
		name := rapid.SampledFrom([]string{"Person", "Person", "House", "Car"}).Draw(rt, "type")
		if _, err := tx.Create(ctx, name); !errors.Is(err, permazen.ErrNoType) {
			return err
		}
		return nil
	}
	id, err := object(ctx, rt, tx, "Person")
	if err != nil || id.IsZero() {
		return err
	}
	to, err := object(ctx, rt, tx, "Person", "House", "Car")
	if err != nil {
		return err
	}
	name := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "name")
	n := rapid.IntRange(-2, 2).Draw(rt, "number")
	switch op {
	case 4:
		err = tx.Set(ctx, id, "name", name)
	case 5, 6, 7, 8:
		err = tx.Set(ctx, id, []string{"boss", "owner", "pet", "spouse"}[op-5], to)
	case 9:
		err = tx.Adjust(ctx, id, "visits", int64(n))
	case 10:
		_, err = tx.Add(ctx, id, "nick", name)
	case 11:
		_, err = tx.Remove(ctx, id, "nick", name)
	case 12:
		_, err = tx.Add(ctx, id, "links", to)
	case 13:
		err = tx.Append(ctx, id, "log", int32(n))
	case 14:
		if err = tx.RemoveAt(ctx, id, "log", 0); errors.Is(err, base.ErrInvalid) {
			err = nil // the list is empty
		}
	case 15:
		err = tx.Insert(ctx, id, "friends", 0, to)
	case 16:
		err = tx.Put(ctx, id, "owes", to, int32(n))
	case 17:
		if _, err = tx.Delete(ctx, to); errors.Is(err, permazen.ErrReferenced) {
			err = nil
		}
	case 18:
		_, err = tx.MigrateAll(ctx)
	case 19:
		err = other(ctx, tx, id, name, n)
	default:
		var car permazen.ObjID
		if car, err = object(ctx, rt, tx, "Car"); err == nil && !car.IsZero() {
			err = tx.Set(ctx, car, "owner", to)
		}
	}
	if errors.Is(err, permazen.ErrBadReference) {
		err = nil
	}
	return err
}

// other sets fields that differ between schemas.
func other(ctx context.Context, tx *permazen.Tx, id permazen.ObjID, name string, n int) error {
	t := tx.Schema().Named("Person")
	if t.Field("extra") != nil {
		return errors.Join(tx.Set(ctx, id, "extra", name), tx.Set(ctx, id, "age", int64(n)), tx.Adjust(ctx, id, "calls", int64(n)))
	}
	return errors.Join(tx.Set(ctx, id, "age", int32(n)), tx.Set(ctx, id, "mood", "SAD"))
}
