package secrecy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/dir"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/split"
)

// sight is what the bucket's owner sees of one object: in which directory it is, how long, and
// which lengths stand in it in clear.
type sight struct {
	kind    string
	bytes   int
	records []int
}

// sights returns what the owner sees of the objects that appear in the bucket while fn runs, in
// order of length: at the same second, their names are random.
func (w *world) sights(fn func()) (all []sight) {
	before := w.paths()
	fn()
	for path := range w.paths() {
		if !before[path] {
			content, err := os.ReadFile(path)
			w.must(err)
			all = append(all, sight{kindOf(strings.TrimPrefix(path, w.bucket)), len(content), recordsOf(content)})
		}
	}
	slices.SortFunc(all, func(a, b sight) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

// paths returns the objects of the bucket.
func (w *world) paths() map[string]bool {
	all := map[string]bool{}
	w.must(filepath.WalkDir(w.bucket, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all[path] = true
		}
		return err
	}))
	return all
}

// recordsOf returns the lengths of the parts of an object, if it has any of which the lengths stand
// in clear, as in the first format: behind a head of 24 bytes, each part has its kind and three
// bytes of length before it, and a tag of 16 bytes behind it.
func recordsOf(content []byte) (lengths []int) {
	for at := 24; at+4 <= len(content); {
		kind, n := content[at], int(content[at+1])<<16|int(content[at+2])<<8|int(content[at+3])
		at += 4 + n + 16
		if kind < 1 || kind > 3 || at > len(content) {
			return nil
		}
		if kind == 3 {
			return lengths
		}
		lengths = append(lengths, n-1)
	}
	return nil
}

// store has a page of its own get one value.
func (w *world) store(r *ledger.Repository, page int, prefix string, value []byte) {
	w.t.Helper()
	ctx := context.Background()
	p, err := r.Page(ctx, "ledger", fmt.Sprintf("page %05d", page))
	w.must(err)
	_, err = p.Update(ctx, func(tx *ledger.Tx) error {
		return tx.PutReader(ctx, []byte(prefix+"file"), bytes.NewReader(value), -1, w.priority)
	})
	w.must(err)
	w.must(p.Sync(ctx))
	w.must(p.Close())
}

// TestLengthsDoNotTellFilesApart repeats the strongest form of an attack on lengths. The bucket's
// owner knows twenty files of one length (at night a hundred), of which somebody stores one. He
// even knows where the splitter cuts, so that he can see what each of the files would look like in
// this bucket. Where he sees the same for several files, he guesses among these. In the first
// format of sealing he named all of them.
func TestLengthsDoNotTellFilesApart(t *testing.T) {
	files := tier.Of(20, 20, 100)
	for _, kind := range []struct {
		size     int
		priority ledger.Priority
	}{{60_000, ledger.Eager}, {1_100_000, ledger.Eager}, {1_100_000, ledger.Lazy}} {
		t.Run(fmt.Sprint(kind.size, kind.priority), func(t *testing.T) {
			size := kind.size
			w := newWorld(t, "key", 1)
			w.priority = kind.priority
			r := w.repository()
			known := map[string][]int{}
			var seen []string
			for i := range files {
				what := fmt.Sprint(w.sights(func() { w.store(r, i, "", noiseOf(uint64(i), size)) }))
				known[what] = append(known[what], i)
				seen = append(seen, what)
			}
			right := 0.0
			for i := range files {
				what := fmt.Sprint(w.sights(func() { w.store(r, files+i, "", noiseOf(uint64(i), size)) }))
				if among := known[what]; slices.Contains(among, i) {
					right += 1 / float64(len(among))
				}
			}
			t.Logf("the owner names %.1f of %d files, by chance 1; he sees %d different things", right, files, len(known))
			if right > 3 { // one boundary of padding among the files gives 2
				t.Errorf("the owner names %.1f of %d files, such as one with %s", right, files, seen[0])
			}
		})
	}
}

// textOf is a text of n bytes that compresses the better the fewer words it has.
func textOf(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 78))
	var words []string
	for range 2 + 20*seed {
		words = append(words, fmt.Sprintf("%x ", rng.Uint64()))
	}
	var b []byte
	for len(b) < n {
		b = append(b, words[rng.IntN(len(words))]...)
	}
	return b[:n]
}

// TestWithoutCompressionLengthsAreThoseOfPlaintexts has texts of one length, which compress to
// different lengths. Below a prefix without compression the owner cannot tell them apart, elsewhere
// he can.
func TestWithoutCompressionLengthsAreThoseOfPlaintexts(t *testing.T) {
	w := newWorld(t, "key", 3)
	w.upload = func(string, ledger.PageID) []ledger.UploadRule {
		return []ledger.UploadRule{{Prefix: []byte("secret/"), CompressionOff: true}}
	}
	r := w.repository()
	const texts = 8
	for k, size := range []int{20_000, 1_200_000} {
		for i, prefix := range []string{"secret/", "open/"} {
			seen := map[string]bool{}
			for n := range texts {
				seen[fmt.Sprint(w.sights(func() { w.store(r, 1000*k+100*i+n, prefix, textOf(uint64(n), size)) }))] = true
			}
			t.Logf("%d bytes below %s: %d different things", size, prefix, len(seen))
			if prefix == "secret/" && len(seen) > 2 || prefix == "open/" && len(seen) < 3 {
				t.Errorf("%d texts of %d bytes below %s show %d different things", texts, size, prefix, len(seen))
			}
		}
	}
}

// TestCommitsAreCompressedByThemselves has a secret in one commit, and a guess at it in another one
// of the same sync: whether the guess is right must not be seen. In the first format a right one
// made the entry shorter.
func TestCommitsAreCompressedByThemselves(t *testing.T) {
	secret := textOf(99, 200)
	seen := map[string]bool{}
	w := newWorld(t, "key", 4)
	r := w.repository()
	ctx := context.Background()
	for n := range 4 {
		guess := secret
		if n > 0 {
			guess = textOf(uint64(99+n), 200)
		}
		for _, size := range []int{200, 3000} { // values with their keys, and of pieces
			for _, copies := range []int{1, 8} {
				p, err := r.Page(ctx, "ledger", fmt.Sprintf("%d %d %d", n, size, copies))
				w.must(err)
				what := fmt.Sprint(size, copies, w.sights(func() {
					for i, text := range [][]byte{secret, guess} {
						for k := range copies {
							_, err := p.Update(ctx, func(tx *ledger.Tx) error {
								return tx.Put(ctx, fmt.Appendf(nil, "%d %03d", i, k), append(noiseOf(uint64(1000*n+k+500*i), size-200), text...))
							})
							w.must(err)
						}
					}
					w.must(p.Sync(ctx))
				}))
				w.must(p.Close())
				seen[what] = true
			}
		}
	}
	if len(seen) != 4 {
		t.Errorf("the owner sees %d different things, want one for each kind of commits: %v", len(seen), seen)
	}
}

// repository opens a repository with the bucket.
func (w *world) repository() *ledger.Repository {
	w.t.Helper()
	r := w.open("a")
	w.t.Cleanup(func() { w.must(r.Close()) })
	_, err := r.SetCloud(context.Background(), &w.cloud)
	w.must(err)
	return r
}

// noiseOf is a file that everybody can know.
func noiseOf(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 77))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestLengthsGiveNoCuts repeats the first step of the attack that computed the secret table of the
// splitter: from lengths the owner finds where known files were cut. Each cut gives twelve linear
// equations of the table, which has 16 384 bits, so that some hundred files of this length gave it
// away: in the first format about a third of what he said was right, where chance gives one in 15
// 000, and files of which he could be sure told him the rest. At night it has as many files as that
// attack had.
func TestLengthsGiveNoCuts(t *testing.T) {
	const size = 1_101_004
	files := tier.Of(40, 40, 1250)
	w := newWorld(t, "key", 2)
	r := w.repository()
	claims, right := 0, 0
	for i := range files {
		value := noiseOf(uint64(100+i), size)
		var claimed []int
		for _, s := range w.sights(func() { w.store(r, i, "", value) }) {
			claimed = append(claimed, cutsOf(s, size)...)
		}
		if len(claimed) == 0 {
			continue
		}
		cuts := w.cuts(value)
		for _, c := range claimed {
			claims++
			if cuts[c] {
				right++
			}
		}
	}
	t.Logf("the owner names %d cuts, %d of them right: %d equations of the table from %d files", claims, right, 12*right, files)
	// One of 18 700 positions is a cut, so chance gives a seventh of a right one for 40 files, and
	// five for 1250. 10 and 22 are out of its reach, and far from the 130 and 4000 of the first
	// format.
	if right > 10+files/100 {
		t.Errorf("the owner learns %d cuts of %d files from lengths", right, files)
	}
}

// cutsOf returns where a file of size bytes that is known to be in an object was cut, as the owner
// concludes.
func cutsOf(s sight, size int) (cuts []int) {
	if s.records == nil { // then by the object as a whole, and where frames of one length end
		claim := func(at int) {
			if at > 0 && at < size {
				cuts = append(cuts, at)
			}
		}
		claim(s.bytes - 2*24 - 16)
		for n := 1; n<<14 < s.bytes; n++ {
			claim(n * (16<<10 - 16))
		}
		return cuts
	}
	sum := 0
	for _, n := range s.records {
		sum += n
	}
	if rest := sum - size; rest < 0 || rest > 20_000 { // an index piece beside the chunks
		return nil
	}
	at := 0
	for _, n := range s.records[:len(s.records)-1] {
		at += n
		cuts = append(cuts, at)
	}
	return cuts
}

// cuts returns where a value is cut in this bucket.
func (w *world) cuts(value []byte) map[int]bool {
	w.t.Helper()
	text, err := os.ReadFile(w.cloud.KeyFile)
	w.must(err)
	master, err := seal.ParseKeyFile(text, secret.Bytes{})
	w.must(err)
	b, err := dir.Open(context.Background(), w.bucket, dir.Options{MustExist: true})
	w.must(err)
	chain, err := cloudsync.ReadKeys(context.Background(), b)
	w.must(errors.Join(err, bucket.Close(b)))
	ring, err := chain.Open(master)
	w.must(err)
	cuts, at := map[int]bool{}, 0
	_, err = split.SplitBytes(context.Background(), split.NewTable(ring.ChunkingSecret().Expose()), value, func(_ context.Context, p split.Piece) error {
		if !p.Digest.Kind().IsIndex() {
			at += len(p.Content)
			cuts[at] = true
		}
		return nil
	})
	w.must(err)
	if at != len(value) {
		w.t.Fatalf("%d bytes of %d are in chunks", at, len(value))
	}
	return cuts
}
