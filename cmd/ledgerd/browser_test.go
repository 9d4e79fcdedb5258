//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// browse is a program of the scripts. It does what an app does in a browser that keeps its data in
// DIR, with the object store STORE of the database main:
//
//	browse DIR put STORE NAME=VALUE...   a record with these properties, texts or numbers
//	browse DIR delete STORE NUMBER
//	browse DIR create STORE INDEX        an upgrade: the index is on the property of its name
//	browse DIR list STORE [INDEX]        key, name and email of each record
func browse() {
	if err := browseIn(ctx(), os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func browseIn(ctx context.Context, dir, verb, store string, args []string) error {
	rows := idb.NewMemory()
	p, err := profile.Open(ctx, dir, nil)
	if err != nil {
		return err
	}
	tx, err := rows.Begin(ctx)
	if err == nil {
		_, err = p.Import(ctx, tx)
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return err
	}
	if err := p.Close(); err != nil {
		return err
	}
	db, err := idb.New(rows, nil).Open(ctx, "main", 0, nil)
	if err != nil {
		return err
	}
	if verb == "create" {
		_, err = idb.New(rows, nil).Open(ctx, "main", db.Version()+1, func(ctx context.Context, u *idb.Upgrade) error {
			s, err := u.CreateObjectStore(store, &idb.StoreOptions{KeyPath: idb.Path("id"), AutoIncrement: true})
			if err == nil {
				_, err = s.CreateIndex(ctx, args[0], idb.Path(args[0]), nil)
			}
			return err
		})
	} else {
		err = use(ctx, db, verb, store, args)
	}
	if err != nil || verb == "list" {
		return err
	}
	page, end, err := rows.View(ctx)
	if err != nil {
		return err
	}
	blobs := strings.TrimSuffix(dir, "leveldb") + "blob"
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(blobs)); err != nil {
		return err
	}
	if _, err := profile.Export(ctx, page, dir, nil); err != nil {
		return err
	}
	return end()
}

// use does something with the records of an object store.
func use(ctx context.Context, db *idb.DB, verb, store string, args []string) error {
	tx, err := db.Begin(ctx, idb.ReadWrite, store)
	if err != nil {
		return err
	}
	defer tx.Abort() // nothing after Commit
	s, err := tx.ObjectStore(store)
	if err != nil {
		return err
	}
	switch verb {
	case "put":
		var all []any
		for _, arg := range args {
			name, text, _ := strings.Cut(arg, "=")
			all = append(all, name)
			if number, err := strconv.ParseFloat(text, 64); err == nil {
				all = append(all, number)
			} else {
				all = append(all, text)
			}
		}
		_, err = s.Put(ctx, value.NewObject(all...), nil)
	case "delete":
		var number float64
		if number, err = strconv.ParseFloat(args[0], 64); err == nil {
			err = s.Delete(ctx, number)
		}
	case "list":
		var records []*idb.Record
		if len(args) == 0 {
			records, err = s.GetAllRecords(ctx, nil, 0, idb.Next)
		} else if x, failed := s.Index(args[0]); failed != nil {
			err = failed
		} else {
			records, err = x.GetAllRecords(ctx, nil, 0, idb.Next)
		}
		for _, r := range records {
			o, _ := r.Value.(*value.Object)
			name, _ := o.Get("name")
			email, _ := o.Get("email")
			fmt.Println(r.PrimaryKey, name, email)
		}
	default:
		err = fmt.Errorf("no verb %q", verb)
	}
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}
