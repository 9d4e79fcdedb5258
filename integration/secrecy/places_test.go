package secrecy_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/dir"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/internal/tier"
)

// TestNothingReadable looks for everything that was planted, everywhere that it must not be.
func TestNothingReadable(t *testing.T) {
	ways := []string{"key", "passphrase"}
	for _, way := range tier.Of([]string{"key"}, ways, ways) { // each command stretches the passphrase anew
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, way, 1)
			t.Setenv("TMPDIR", w.tmp)
			ended := w.watchTemporary()
			w.run()
			w.commands()
			temporary := ended()
			all := slices.Concat(w.keys, w.inside, w.names)
			kinds := map[string]int{}
			w.files(w.bucket, func(path string, content []byte) {
				name := strings.TrimPrefix(path, w.bucket)
				kinds[kindOf(name)]++
				if found := find([]byte(name), all); found != nil {
					t.Errorf("the name %s shows %v", name, found)
				}
				for _, b := range unpacked(t, content) {
					if found := find(b, all); found != nil {
						t.Errorf("%s shows %v", name, found)
					}
				}
			})
			t.Log(kinds)
			for _, k := range []string{"epochs", "log", "packs", "checkpoints", "pages", "keys"} {
				if kinds[k] == 0 && (way == "key" || k != "log") {
					t.Errorf("nothing of kind %s was looked at", k)
				}
			}
			// Who reads logs and states is on the device, where pages, tags and messages have
			// names. Keys and values are for nobody's eyes.
			if found := find(w.out.text.Bytes(), slices.Concat(w.keys, w.values())); found != nil {
				t.Errorf("logs, errors, states or output show %v", found)
				for line := range bytes.Lines(w.out.text.Bytes()) {
					if find(line, slices.Concat(w.keys, w.values())) != nil {
						t.Fatalf("such as %.300q", line)
					}
				}
			}
			if n := w.out.text.Len(); n < 50_000 {
				t.Errorf("only %d bytes were said", n)
			}
			if found := find(temporary, all); found != nil {
				t.Errorf("temporary files show %v", found)
			}
			w.inRepositories()
		})
	}
}

// inRepositories looks for what opens the bucket in all files of the devices: their pages are not
// sealed, but keys are not there.
func (w *world) inRepositories() {
	w.t.Helper()
	clouds := 0
	for _, dir := range []string{"a", "b", "d", "none"} {
		if _, err := os.Stat(filepath.Join(w.dir, dir)); err != nil {
			continue
		}
		w.files(filepath.Join(w.dir, dir), func(path string, content []byte) {
			if found := find(content, w.keys); found != nil {
				w.t.Errorf("%s shows %v", path, found)
			}
			if base := filepath.Base(path); base == "cloud" || base == "cloud-state" {
				clouds++
				if found := find(content, w.inside); found != nil {
					w.t.Errorf("%s shows %v", path, found)
				}
			}
		})
	}
	if clouds < 4 {
		w.t.Errorf("%d files about clouds", clouds)
	}
}

// watchTemporary collects what temporary files hold from time to time. The function that it returns
// ends that and returns it.
func (w *world) watchTemporary() func() []byte {
	var seen bytes.Buffer
	stop, ended := make(chan struct{}), make(chan struct{})
	look := func() {
		entries, _ := os.ReadDir(w.tmp) // what is gone meanwhile is not there
		for _, e := range entries {
			b, _ := os.ReadFile(filepath.Join(w.tmp, e.Name()))
			seen.WriteString(e.Name())
			seen.Write(b)
		}
	}
	go func() {
		defer close(ended)
		for {
			tick, release := clock.System.After(5 * time.Millisecond)
			select {
			case <-tick:
				look()
			case <-stop:
				release()
				look()
				return
			}
		}
	}()
	return func() []byte {
		close(stop)
		<-ended
		return seen.Bytes()
	}
}

func kindOf(name string) string {
	for _, k := range []string{"log", "packs", "checkpoints", "epochs", "pages", "keys"} {
		if strings.Contains(name, k+"+/") {
			return k
		}
	}
	return strings.Trim(name, "/=")
}

// TestPlaintextIsReadable is the control: without a master key the same search finds everything
// that goes into a bucket.
func TestPlaintextIsReadable(t *testing.T) {
	w := newWorld(t, "plaintext", 1)
	w.calm = true
	w.run()
	missing := map[string]bool{}
	for _, c := range slices.Concat(w.inside, w.names) {
		missing[c.what] = true
	}
	w.files(w.bucket, func(_ string, content []byte) {
		for _, b := range unpacked(t, content) {
			for _, c := range slices.Concat(w.inside, w.names) {
				if find(b, []canary{c}) != nil {
					delete(missing, c.what)
				}
			}
		}
	})
	if len(missing) > 0 {
		t.Errorf("the search does not find %v in a bucket that everybody can read", missing)
	}
}

// TestBucketsHaveNothingInCommon has two buckets with the same content: no 16 bytes stand in both,
// no name but those that all buckets have, and what is sealed looks like noise.
func TestBucketsHaveNothingInCommon(t *testing.T) {
	const block = 16
	blocks := map[[block]byte]string{}
	names := map[string]bool{}
	for i := range 2 {
		w := newWorld(t, "key", 1)
		w.calm = true
		w.run()
		var counts [256]int
		total := 0
		w.files(w.bucket, func(path string, content []byte) {
			name := strings.TrimPrefix(path, w.bucket)
			if kindOf(name) == "keys" {
				return // zeros where a passphrase would have its salt
			}
			for _, part := range strings.Split(name, "/") {
				if len(part) >= 33 && i == 1 && names[part] {
					t.Errorf("the part %s of a name is in both buckets", part)
				}
				names[part] = names[part] || i == 0
			}
			if i == 0 {
				for at := 0; at+block <= len(content); at += block {
					blocks[[block]byte(content[at:])] = name
				}
			} else {
				for at := 0; at+block <= len(content); at++ {
					if other, ok := blocks[[block]byte(content[at:])]; ok {
						t.Fatalf("%x at %d in %s is in %s of another bucket too", content[at:at+block], at, name, other)
					}
				}
			}
			if kindOf(name) == "packs" || kindOf(name) == "checkpoints" {
				for _, b := range content[min(64, len(content)):max(64, len(content)-64)] {
					counts[b]++
					total++
				}
			}
		})
		expected, chi := float64(total)/256, 0.0
		for _, n := range counts {
			chi += (float64(n) - expected) * (float64(n) - expected) / expected
		}
		t.Logf("bucket %d: %d blocks, chi-square of %d sealed bytes %.0f", i, len(blocks), total, chi)
		if total < 2<<20 || chi > 430 || chi < 130 { // 255 degrees of freedom: a chance of less than one in 10 billion for either bound
			t.Errorf("chi-square of %d sealed bytes is %.0f", total, chi)
		}
	}
}

// TestANewBucketHasNothingOfTheOld has one repository go from a sealed bucket to another one with
// the same key file, and to a plaintext one: each has a chunking secret of its own and another key
// of the device, and the plaintext one shows no secret of the others.
func TestANewBucketHasNothingOfTheOld(t *testing.T) {
	w := newWorld(t, "key", 5)
	ctx := t.Context()
	r := w.open("a")
	defer func() { w.must(r.Close()) }()
	text, err := os.ReadFile(w.cloud.KeyFile)
	w.must(err)
	master, err := seal.ParseKeyFile(text, secret.Bytes{})
	w.must(err)
	var secrets []canary
	devices := map[string]bool{}
	for i, plain := range []bool{false, false, true} {
		c := ledger.Cloud{URL: fmt.Sprint("dir:", w.bucket, i), KeyFile: w.cloud.KeyFile}
		if plain {
			c, master = ledger.Cloud{URL: c.URL, Plaintext: true}, seal.MasterKey{}
		}
		info, err := r.SetCloud(ctx, &c)
		w.must(err)
		if devices[info.Device] {
			t.Errorf("the device has the key of another bucket in bucket %d", i)
		}
		devices[info.Device] = true
		w.store(r, i, "", noiseOf(uint64(i), 100_000))
		w.sync(r)
		b, err := dir.Open(ctx, fmt.Sprint(w.bucket, i), dir.Options{MustExist: true})
		w.must(err)
		chain, err := cloudsync.ReadKeys(ctx, b)
		w.must(errors.Join(err, bucket.Close(b)))
		ring, err := chain.Open(master)
		w.must(err)
		chunking := canaryOf(fmt.Sprint("chunking secret ", i), bytes.Clone(ring.ChunkingSecret().Expose()))
		for _, other := range secrets {
			if bytes.Equal(other.text, chunking.text) {
				t.Errorf("%s is that of bucket %d too", other.what, i)
			}
		}
		if !plain {
			secrets = append(secrets, chunking)
		}
	}
	for id := range devices {
		secrets = append(secrets, canaryOf("device "+id, []byte(id)))
	}
	files := 0
	w.files(fmt.Sprint(w.bucket, 2), func(path string, content []byte) {
		files++
		for _, u := range unpacked(t, content) {
			if found := find(u, append(slices.Clone(w.keys), secrets[:2]...)); found != nil {
				t.Errorf("%s shows %v", path, found)
			}
		}
		if found := find([]byte(path), secrets); found != nil {
			t.Errorf("the name %s shows %v", path, found)
		}
	})
	if files < 5 {
		t.Errorf("%d objects", files)
	}
}
