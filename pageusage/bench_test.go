package pageusage_test

import (
	"testing"

	"github.com/ledgerd/ledger/pageusage"
)

// BenchmarkOpenClose marks a page open and closed, over 1000 pages in a file.
func BenchmarkOpenClose(b *testing.B) {
	d, _, err := pageusage.Open(b.TempDir(), pageusage.Options{Now: at(1)})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	n := int64(0)
	for b.Loop() {
		n++
		p := pageusage.Page{Ledger: "ledger", ID: [16]byte{byte(n % 1000 >> 8), byte(n % 1000)}}
		if err := d.MarkOpened(p); err != nil {
			b.Fatal(err)
		}
		if err := d.MarkClosed(p, at(n)); err != nil {
			b.Fatal(err)
		}
	}
}
