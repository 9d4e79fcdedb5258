package pack_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/dir"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// benchBytes is the content of one upload: 256 MiB, or 1 GiB with LEDGER_TIER=2.
func benchBytes() int {
	if tier.Nightly() {
		return 1 << 30
	}
	return 256 << 20
}

// BenchmarkUpload uploads incompressible pieces of 16 KiB into a directory, and copies a file of
// the same bytes and syncs it, by turns. copyratio is the time of the copy divided by that of the
// upload, of the whole run; stored is bytes stored per byte of content.
func BenchmarkUpload(b *testing.B) {
	ring, err := seal.NewKeyring(seal.AES256GCM, nil)
	if err != nil {
		b.Fatal(err)
	}
	size := benchBytes()
	const pieceBytes = 16 << 10
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	digests := make([]object.Digest, size/pieceBytes)
	for i := range digests {
		digests[i] = object.Sum(object.Chunk, content[i*pieceBytes:][:pieceBytes])
	}
	source := filepath.Join(b.TempDir(), "source")
	if err := os.WriteFile(source, content, 0o600); err != nil {
		b.Fatal(err)
	}
	var uploading, copying time.Duration
	var stored uint64
	b.SetBytes(int64(size))
	for b.Loop() {
		b.StopTimer()
		copying += copyFile(b, source)
		d, err := dir.Open(b.Context(), b.TempDir(), dir.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		start := clock.System.Now()
		stored += uploadAll(b, d, seal.NewSealer(ring, nil), digests, content)
		uploading += clock.System.Now().Sub(start)
		b.StopTimer()
		_ = os.RemoveAll(d.String()[len("dir:"):])
		b.StartTimer()
	}
	b.ReportMetric(float64(copying)/float64(uploading), "copyratio")
	b.ReportMetric(float64(stored)/float64(size)/float64(b.N), "stored")
	b.ReportMetric(float64(size)*float64(b.N)/1e6/copying.Seconds(), "copyMB/s")
}

func uploadAll(b *testing.B, to bucket.Bucket, s *seal.Sealer, digests []object.Digest, content []byte) (stored uint64) {
	u := pack.NewUploader(b.Context(), pack.UploadOptions{Bucket: to, Sealer: s, Names: wire.Names{Dir: "l/p"}, Epoch: epoch.ID{1}})
	defer u.Close()
	pieceBytes := len(content) / len(digests)
	for i, d := range digests {
		if err := u.Add(d, content[i*pieceBytes:][:pieceBytes], true, true); err != nil {
			b.Fatal(err)
		}
	}
	refs, err := u.Finish()
	if err != nil {
		b.Fatal(err)
	}
	for _, ref := range refs {
		stored += ref.Bytes
	}
	return stored
}

// copyFile returns how long it takes to copy a file, by read and write as cp does between file
// systems, and to sync it.
func copyFile(b *testing.B, source string) time.Duration {
	target := filepath.Join(b.TempDir(), "target")
	start := clock.System.Now()
	in, err := os.Open(source)
	if err != nil {
		b.Fatal(err)
	}
	out, err := os.Create(target)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, 256<<10))
	if err == nil {
		err = out.Sync()
	}
	if err != nil {
		b.Fatal(err)
	}
	took := clock.System.Now().Sub(start)
	_, _ = in.Close(), out.Close()
	_ = os.Remove(target)
	return took
}

// BenchmarkSeal uploads to nowhere: what the processor does of an upload.
func BenchmarkSeal(b *testing.B) {
	ring, err := seal.NewKeyring(seal.AES256GCM, nil)
	if err != nil {
		b.Fatal(err)
	}
	content := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	digests := make([]object.Digest, len(content)/(16<<10))
	for i := range digests {
		digests[i] = object.Sum(object.Chunk, content[i*(16<<10):][:16<<10])
	}
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		uploadAll(b, nowhere{}, seal.NewSealer(ring, nil), digests, content)
	}
}

// nowhere takes what is put and forgets it.
type nowhere struct{ bucket.Bucket }

func (nowhere) PutIfAbsent(_ context.Context, _ string, _ int64, content io.Reader) error {
	_, err := io.Copy(io.Discard, content)
	return err
}

// BenchmarkOverhead packs the source tree of Go, and a random value of as many bytes as benchBytes
// says. percent is how much longer packs are than the blocks in them, after compression: frames,
// padding, heads, and the tables, which name each piece.
func BenchmarkOverhead(b *testing.B) {
	tree := func(give func(content []byte) error) error {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return err
		}
		return filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil || len(content) == 0 {
				return err
			}
			return give(content)
		})
	}
	random := func(give func(content []byte) error) error {
		content := make([]byte, benchBytes())
		_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
		return give(content)
	}
	for name, each := range map[string]func(func([]byte) error) error{"tree": tree, "random": random} {
		b.Run(name, func(b *testing.B) {
			ring, err := seal.NewKeyring(seal.AES256GCM, nil)
			if err != nil {
				b.Fatal(err)
			}
			var packs, blocks, content int64
			for b.Loop() {
				u := pack.NewUploader(b.Context(), pack.UploadOptions{Bucket: nowhere{}, Sealer: seal.NewSealer(ring, nil), Names: wire.Names{Dir: "l/p"}, Epoch: epoch.ID{1},
					Uploaded: func(_ context.Context, ref wire.Pack, pieces []storage.PlacedPiece) error {
						packs += int64(ref.Bytes)
						seen := map[uint32]bool{}
						for _, p := range pieces {
							if content += int64(p.Place.Bytes); !seen[p.Place.Block] {
								seen[p.Place.Block] = true
								blocks += int64(p.Place.StoredBytes)
							}
						}
						return nil
					}})
				err := each(func(content []byte) error {
					_, err := split.SplitBytes(b.Context(), split.DefaultTable(), content, func(_ context.Context, p split.Piece) error {
						return u.Add(p.Digest, p.Content, false, true)
					})
					return err
				})
				if err == nil {
					_, err = u.Finish()
				}
				u.Close()
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(packs)/float64(blocks)*100-100, "percent")
			b.ReportMetric(float64(content)/float64(b.N)/1e6, "content-MB")
			b.ReportMetric(float64(packs)/float64(b.N)/1e6, "packs-MB")
		})
	}
}
