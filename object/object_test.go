package object_test

import (
	"bytes"
	"testing"

	"github.com/ledgerd/ledger/object"
)

func TestSumEachIsSum(t *testing.T) {
	for _, n := range []int{0, 1, 2, 16, 100} {
		got := make([]object.Digest, n)
		content := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, i*i) }
		object.SumEach(object.NodeBit, n, func(i int) ([]byte, *object.Digest) { return content(i), &got[i] })
		for i := range got {
			if want := object.Sum(object.NodeBit, content(i)); got[i] != want {
				t.Errorf("piece %d of %d: digest %s, want %s", i, n, got[i], want)
			}
		}
	}
}
