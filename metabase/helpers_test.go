package metabase_test

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/keyspace"
	"github.com/ledgerd/ledger/metabase"
)

func texts[T fmt.Stringer](all []T) (s []string) {
	for _, x := range all {
		s = append(s, x.String())
	}
	return s
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// flatRow is the key of a row on a page.
func flatRow(bucket, key []byte) ([]byte, error) {
	return keyspace.Escaped{}.Encode([][]byte{[]byte(metabase.Namespace), bucket}, key)
}
