package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

// lister answers lists as it likes.
type lister struct {
	bucket.Bucket
	list func(after string, limit int) []bucket.Info
}

func (l lister) List(_ context.Context, after, _ string, limit int) ([]bucket.Info, error) {
	return l.list(after, limit), nil
}

func TestEach(t *testing.T) {
	all := make([]bucket.Info, 2500)
	for i := range all {
		all[i].Name = fmt.Sprintf("p/%04d", i)
	}
	from := func(after string, limit int) []bucket.Info {
		i, _ := slices.BinarySearchFunc(all, after+"\x00", func(i bucket.Info, name string) int { return strings.Compare(i.Name, name) })
		return all[i:min(len(all), i+limit)]
	}
	for name, c := range map[string]struct {
		list func(after string, limit int) []bucket.Info
		want int // -1: an error
	}{
		"honest":             {from, 2400},
		"the same again":     {func(_ string, limit int) []bucket.Info { return all[100 : 100+limit] }, -1},
		"backwards":          {func(string, int) []bucket.Info { return []bucket.Info{all[200], all[150]} }, -1},
		"what was not asked": {func(string, int) []bucket.Info { return []bucket.Info{{Name: "q/1"}} }, -1},
		"no end": {func(after string, limit int) (infos []bucket.Info) {
			n := 0
			_, _ = fmt.Sscanf(after, "p/%020d", &n) // 0 at the beginning
			for i := range limit {
				infos = append(infos, bucket.Info{Name: fmt.Sprintf("p/%020d", n+i+1)})
			}
			return infos
		}, -1},
	} {
		after := "p/0099"
		if name == "no end" {
			after = ""
		}
		got := 0
		err := bucket.Each(t.Context(), lister{list: c.list}, after, "p/", func(bucket.Info) bool { got++; return true })
		if c.want < 0 && !errors.Is(err, base.ErrCorrupt) || c.want >= 0 && (err != nil || got != c.want) {
			t.Errorf("%s: %d objects, %v", name, got, err)
		}
	}
}
