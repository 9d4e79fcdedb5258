// Package records keeps typed records on a page, with indexes that stay correct across merges.
//
// A Collection is a namespace of a page. It stores values of a Go type under ids that the app
// chooses, and index rows for each index: a function of the value that the app declares. One
// transaction can change several collections of a page. Collections sync with the page, and have
// its history.
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
// Open gives the page a merge rule for the namespace. If one side changed a record, the merge takes
// it from that side. If both changed it, the record is merged field by field: a field that one side
// changed is taken from there, and one that both changed follows its struct tag:
//
//	`ledger:"counter"`  integers and floating-point numbers: the changes of both sides are added;
//	                    an integer stops at the bounds of its type
//	`ledger:"set"`      slices and maps: additions and removals of both sides are applied
//	`ledger:"max"`      numbers, strings and times: the greatest
//	otherwise           the side that wrote the record last
//
// Elements of sets, and keys of maps, are strings, booleans, numbers, or arrays and structs of
// these. Elements may also be time.Time. A merged slice has each element once. Of a map's value
// that both sides changed, the merge takes that of the side that wrote the record last.
//
// When devices merged the same branches concurrently in different ways, the common ancestors may
// have different versions of a record. Additions and removals are then unknown: a counter becomes
// the greater one, and a set has the elements of both sides.
//
// A field that is a struct without a tag is merged field by field, too. A struct with unexported
// fields is one value and has no tags. If one side deleted a record and the other changed it, the
// side that wrote last wins. It also wins when the merged record cannot be encoded or has a key
// above MaxIndexKeyBytes. Page.Conflicts lists the lost changes under the rule "records".
// Collection.PageKey has an example that shows the lost versions of a record.
//
// The rule of Open is kept in memory only, and heads may be merged before Open is called: by
// background sync, and by the opening of the page. So give the rule to the repository as well:
//
//	o := &records.Options[Note]{...}
//	rule, err := records.MergeRule("notes", o)
//	repo, err := ledger.Open(ctx, dir, &ledger.Options{
//		MergeRules: func(string, ledger.PageID) []ledger.MergeRule {
//			return []ledger.MergeRule{rule}
//		},
//	})
//
// A program without the rule, such as ledgerd, merges row by row: of a record that both sides
// changed, it takes the one written last, whatever its tags say. Index rows may then miss records,
// or have old keys. When both sides had changed records, the collection detects this. It then
// answers queries by reading all records, until Open, Put or Delete rebuilds all index rows.
//
// Index rows are derived: a merge makes them from the merged records, not from the rows of both
// sides. All devices must declare the same indexes and tags for one collection; for changes see
// Options.Version. When a stored record has a key above MaxIndexKeyBytes, because the indexes have
// changed since, queries do not find the record by this key.
//
// # Unique indexes
//
// A Put that would give a record a key of a unique index that another record has fails with
// ErrUnique. Two devices may still do so independently. Both records then stay: Query by the index
// returns both, by ascending id, and Duplicates lists them until the app has given one another key.
// A Put that keeps the shared key succeeds.
//
// # Rows
//
// A collection with the name N has these rows, in which tuple is the encoding of Key:
//
//	N 0x00 "m" nonce                  versions of the value and of the indexes; see below
//	N 0x00 "r" id                     a record: uvarint version, then what the codec wrote
//	N 0x00 "i" tuple(index, key) id   a row of an index, without a value
//
// Each transaction that changes records replaces the row "m" by one with another nonce, however
// many records it changes. Two of these rows, or none, show that a program without the rule has
// merged.
//
// The package uses only the public API of package ledger. A Collection may be used concurrently, a
// Tx or View like the transaction or snapshot that it shows. The API may change with any release.
package records
