// Package records keeps typed records on a page, with indexes that stay right through merges.
//
// A Collection is a namespace of a page. It stores values of a Go type under ids of the app, and
// has rows for each of its indexes: functions of the value that the app declares. Collections of
// one page change together in one transaction, sync with the page, and have its history.
//
//	type Note struct {
//		Title string
//		Tags  []string `ledger:"set"`
//		Views int64    `ledger:"counter"`
//	}
//
//	notes, err := records.Open(ctx, page, "notes", &records.Options[Note]{
//		Indexes: []records.Index[Note]{{
//			Name: "tag",
//			Keys: func(n *Note) (keys [][]byte) {
//				for _, t := range n.Tags {
//					keys = append(keys, records.Key(t))
//				}
//				return keys
//			},
//		}},
//	})
//	err = notes.Put(ctx, "n1", &Note{Title: "hello", Tags: []string{"a"}})
//	q := records.Query{Index: "tag", Equal: records.Key("a")}
//	for note, err := range notes.Query(ctx, q) {
//		...
//	}
//
// # Merging
//
// Open gives the page a merge rule for the namespace. A record that one side has changed is taken
// from there. A record that both have changed is merged field by field: a field that one side has
// changed is taken from there, and one that both have changed as its struct tag says:
//
//	`ledger:"counter"`  integers and floating-point numbers: what both sides have added is added
//	`ledger:"set"`      slices and maps: what one side has added or removed is added or removed
//	`ledger:"max"`      numbers, strings and times: the greatest
//	otherwise           the side that wrote the record last
//
// Where devices have merged the same branches at the same time in different ways, it may be that
// the common ancestors do not agree about a record. Then nothing tells who has added or removed
// what: a counter becomes the greater one, and a set has what either side has.
//
// Structs without a tag that are fields are merged in the same way, field by field. A record that
// one side has deleted and the other one changed is what the side has that wrote it last. What a
// merge has decided against a side is told by Page.Conflicts under the rule "records".
//
// The rule lives in the memory of the program: open the collections of a page before its heads are
// merged, and call Page.SetMergeRules, which takes the rule away, before that. A program that
// merges the page without them, such as ledgerd, decides each row by itself: a record that both
// sides have changed is then the one that was written last, whatever its tags say. Index rows may
// miss records, or name keys that records had. A collection notices that where both sides have
// changed records. It then answers queries by reading all records, until Open, Put or Delete makes
// all index rows again.
//
// Index rows are derived: after each merge they are what the merged records say, whatever rows both
// sides had. All devices must declare the same indexes and tags for one collection; see
// Options.Version for changes.
//
// # Unique indexes
//
// A Put that would give two records one key of a unique index fails with ErrUnique. Two devices may
// do so without knowing of each other. Then both records stay, Get and Query by the index give
// both, the one with the lesser id first, and Duplicates lists them until the app has changed one.
//
// # Rows
//
// A collection with the name N has these rows, in which tuple is the encoding of Key:
//
//	N 0x00 "m" nonce                  versions of the value and of the indexes; see below
//	N 0x00 "r" id                     a record: uvarint version, then what the codec wrote
//	N 0x00 "i" tuple(index, key) id   a row of an index, without a value
//
// Each transaction that changes records gives the row "m" another nonce: one row less and one more,
// however many records it changes. Two of these rows, or none, say that a program without the rule
// has merged.
//
// The package stands on the public API of package ledger alone. Its values may be used
// concurrently, but a Tx and a View as what they were made of. It may change with any release.
package records
