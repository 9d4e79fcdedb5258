package profile

import (
	"fmt"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// applyScopes undoes unfinished transactions, and completes the cleanup of committed ones. The keys
// of tasks sort so that the newest undo task is first.
func applyScopes(db *leveldb.DB) error {
	scopes := indexeddb.Row{Kind: indexeddb.KindScope}
	it := db.NewIterator(&util.Range{
		Start: scopes.Append(nil), Limit: indexeddb.Row{Kind: indexeddb.KindDatabaseFree}.Append(nil),
	}, nil)
	defer it.Release()
	committed := map[int64]bool{}
	for it.Next() {
		row, err := indexeddb.DecodeRow(it.Key())
		if err == nil {
			err = applyScope(db, row, it.Key(), it.Value(), committed)
		}
		if err != nil {
			return fmt.Errorf("scope %s: %w", shortHex(it.Key()), err)
		}
	}
	return it.Error()
}

// applyScope applies one row of the scopes log. The metadata of scopes sort before all tasks.
func applyScope(db *leveldb.DB, row indexeddb.Row, key, value []byte, committed map[int64]bool) error {
	if row.Kind != indexeddb.KindScope {
		return nil
	}
	s, err := indexeddb.DecodeScope(row.Scope)
	if err != nil {
		return err
	}
	switch s.Kind {
	case indexeddb.ScopeVersion:
		v, err := indexeddb.DecodeScopesVersion(value)
		if err == nil && v != indexeddb.ScopesVersion {
			err = &base.FormatError{What: "scopes", Found: uint64(v), Supported: indexeddb.ScopesVersion}
		}
		return err
	case indexeddb.ScopeMetadata:
		if committed[s.ID], err = indexeddb.ScopeCommitted(value); err != nil {
			return err
		}
	case indexeddb.ScopeTask:
		if committed[s.ID] == s.Cleanup {
			op, err := indexeddb.DecodeScopeTask(value, s.Cleanup)
			if err != nil {
				return err
			}
			if err := applyOperation(db, op); err != nil {
				return err
			}
		}
	}
	return db.Delete(key, nil)
}

func applyOperation(db *leveldb.DB, op indexeddb.ScopeOperation) error {
	switch {
	case op.Put:
		return db.Put(op.Key, op.Value, nil)
	case op.End == nil:
		return db.Delete(op.Key, nil)
	}
	it := db.NewIterator(&util.Range{Start: op.Key, Limit: op.End}, nil)
	defer it.Release()
	for it.Next() {
		if err := db.Delete(it.Key(), nil); err != nil {
			return err
		}
	}
	return it.Error()
}
