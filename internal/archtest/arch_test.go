package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ledgerd/ledger"

// rule says what a package may import of the module, from bottom to top, and why it stands where it
// does.
type rule struct {
	pkg    string
	allow  []string // packages of the module, "" is the root
	extern []string // import paths outside the standard library, without tests
	reason string
}

var rules = []rule{
	{"internal/base", nil, nil, "errors that all share"},
	{"internal/clock", nil, nil, "the only reader of the wall clock"},
	{"internal/limits", nil, nil, "bounds that are part of formats and API"},
	{"internal/tier", nil, nil, "how much tests try; no other code imports it"},
	{"internal/gate", []string{"internal/base"}, nil, "calls that a closer waits for"},
	{"internal/turn", nil, nil, "locks that are held across I/O"},
	{"internal/vfs", []string{"internal/base"}, []string{"golang.org/x/sys/unix", "golang.org/x/sys/windows"}, "files, on disk and in memory"},
	{"internal/vfs/vfstest", []string{"internal/base", "internal/vfs"}, nil, "files that tests can crash"},
	{"keyspace", []string{"internal/base"}, nil, "rows and layers stand on it; it knows none of them"},
	{"internal/spool", nil, nil, "temporary files that begin in memory"},
	{"object", []string{"internal/base"}, nil, "names of pieces, without knowledge of where they are"},
	{"flatbuffers", []string{"internal/base", "internal/limits", "object", "flatbuffers/gen/ledgerfb"}, []string{"github.com/google/flatbuffers/go"}, "the only door to the FlatBuffers runtime"},
	{"split", []string{"internal/base", "internal/limits", "object", "flatbuffers"}, []string{"github.com/chmduquesne/rollinghash/buzhash64"}, "pieces of any object, wherever they are stored"},
	{"btree", []string{"internal/base", "internal/limits", "object", "flatbuffers", "split"}, []string{"github.com/dchest/siphash"}, "the tree over objects, without knowledge of commits or storage"},
	{"commit", []string{"internal/base", "internal/limits", "object", "flatbuffers"}, nil, "commits and their graph, without knowledge of storage"},
	{"gc", []string{"internal/base", "internal/limits", "commit"}, nil, "what may go from a page, without knowledge of where it is stored"},
	{"merge", []string{"internal/base", "internal/limits", "object", "flatbuffers", "split", "btree", "commit"}, nil, "how heads come together, without knowledge of where they are stored"},
	{"storage/segment", []string{"internal/base", "internal/vfs"}, nil, "batches of records, whatever they mean"},
	{"internal/boltpage", []string{"internal/base"}, []string{"golang.org/x/sys/unix"}, "the layout of bbolt files, verified before bbolt relies on it"},
	{"storage/index", []string{"internal/base", "internal/boltpage"}, []string{"go.etcd.io/bbolt", "go.etcd.io/bbolt/errors", "github.com/tidwall/btree"}, "sorted rows, whatever they mean; the only door to bbolt for what is ours"},
	{"storage", []string{"internal/base", "internal/clock", "internal/limits", "internal/vfs", "internal/turn", "object", "flatbuffers", "split", "btree", "commit", "storage/segment", "storage/index"}, []string{"github.com/tidwall/btree"}, "the page store; it executes what gc, merge and sync decide"},
	{"pageusage", []string{"internal/base", "internal/limits", "internal/vfs", "storage/index"}, nil, "which page was used when"},
	{"internal/secret", nil, nil, "bytes that do not print"},
	{"cloudsync/bucket", []string{"internal/base", "internal/clock"}, []string{"golang.org/x/sync/errgroup"}, "what is asked of an object store, and its proofs"},
	{"cloudsync/bucket/buckettest", []string{"cloudsync/bucket", "internal/base"}, nil, "the suite that every store runs"},
	{"cloudsync/mem", []string{"cloudsync/bucket", "internal/clock"}, nil, "a bucket that fails on demand, for tests"},
	{"cloudsync/dir", []string{"cloudsync/bucket", "internal/base", "internal/clock"}, []string{"golang.org/x/sys/unix"}, "a bucket in a directory"},
	{"cloudsync/gcs", []string{"cloudsync/bucket", "internal/base"}, []string{"cloud.google.com/go/auth", "cloud.google.com/go/storage", "google.golang.org/api/googleapi", "google.golang.org/api/iterator", "google.golang.org/api/option", "google.golang.org/api/option/internaloption", "google.golang.org/api/transport/http"}, "the only door to the cloud client"},
	{"cloudsync/s3", []string{"cloudsync/bucket", "internal/base"}, []string{"github.com/minio/minio-go/v7", "github.com/minio/minio-go/v7/pkg/credentials", "gopkg.in/ini.v1"}, "the only door to the client of S3"},
	{"cloudsync/seal", []string{"internal/base", "internal/secret"}, []string{"golang.org/x/crypto/argon2", "github.com/klauspost/compress/zstd"}, "between plaintext and what a bucket's owner sees"},
	{"cloudsync/seal/sealtest", []string{"cloudsync/seal"}, nil, "for tests that seal in bubbles"},
	{"cloudsync/epoch", nil, nil, "what counts in a bucket and for how long, as pure functions"},
	{"cloudsync/epoch/epochtest", []string{"cloudsync/epoch"}, nil, "what models of the log need beside it"},
	{"cloudsync/wire", []string{"internal/base", "internal/limits", "object", "flatbuffers", "btree", "commit", "cloudsync/seal", "cloudsync/epoch"}, nil, "the bytes of every object in a bucket, without I/O"},
	{"cloudsync/pagelog", []string{"internal/base", "cloudsync/bucket", "cloudsync/seal", "cloudsync/epoch", "cloudsync/wire"}, nil, "what a device asks of the bucket for the log of a page"},
	{"cloudsync/checkpoint", []string{"internal/base", "internal/spool", "cloudsync/bucket", "cloudsync/seal", "cloudsync/epoch", "cloudsync/wire"}, nil, "the checkpoints of a page, made of runs"},
	{"cloudsync/replica", []string{"internal/base", "internal/limits", "internal/spool", "object", "commit", "flatbuffers", "split", "btree", "storage", "cloudsync/bucket", "cloudsync/seal", "cloudsync/epoch", "cloudsync/wire", "cloudsync/checkpoint", "cloudsync/pack", "cloudsync/pagelog", "cloudsync/progress"}, nil, "a page of this device as the replica of one in a bucket"},
	{"cloudsync/progress", nil, nil, "how much of a sync is done, and of how much"},
	{"cloudsync/pack", []string{"internal/base", "internal/limits", "object", "storage", "cloudsync/bucket", "cloudsync/seal", "cloudsync/epoch", "cloudsync/wire"}, []string{"golang.org/x/sync/semaphore"}, "pieces of values on their way to a bucket and back"},
	{"cloudsync/leak", []string{"cloudsync/bucket", "cloudsync/seal", "cloudsync/wire"}, nil, "what a bucket's owner can tell, without a key"},
	{"cloudsync", []string{"internal/base", "internal/clock", "internal/turn", "object", "commit", "storage", "cloudsync/bucket", "cloudsync/seal", "cloudsync/epoch", "cloudsync/wire", "cloudsync/pack", "cloudsync/pagelog", "cloudsync/replica", "cloudsync/progress"}, nil, "the worker that keeps pages in step with a bucket"},
	{"internal/changes", []string{"internal/limits", "object", "btree"}, []string{"github.com/tidwall/btree"}, "what a transaction changes, wherever it is applied"},
	{"internal/layout", []string{"internal/base", "internal/clock", "internal/limits", "internal/vfs"}, []string{"github.com/gofrs/flock"}, "where a repository keeps its files, and the formats of the small ones"},
	{"internal/presence", []string{"internal/base", "internal/layout", "internal/vfs"}, nil, "where a page is and who has it, whatever is in it"},
	{"internal/reclaim", []string{"internal/base", "internal/clock", "internal/layout", "internal/presence", "internal/turn", "object", "btree", "commit", "gc", "storage", "pageusage", "cloudsync"}, nil, "how space comes back, whoever has pages open"},
	{"internal/cloudlink", []string{"internal/base", "internal/clock", "internal/layout", "internal/presence", "internal/secret", "internal/vfs", "internal/turn", "object", "commit", "storage", "cloudsync", "cloudsync/bucket", "cloudsync/dir", "cloudsync/wire", "cloudsync/seal"}, nil, "the cloud of a repository, whoever has pages open"},
	{"internal/backup", []string{"internal/base", "internal/layout", "internal/presence", "internal/vfs", "pageusage"}, nil, "copies of a repository"},
	{"internal/checkup", []string{"internal/base", "internal/layout", "object", "flatbuffers", "btree", "commit", "storage", "pageusage", "cloudsync"}, nil, "checks and repairs, whoever has pages open"},
	{"internal/session", []string{"internal/base", "internal/changes", "internal/clock", "internal/gate", "internal/limits", "object", "flatbuffers", "split", "btree", "commit", "merge", "storage"}, nil, "the work on one open page, without knowledge of what is around it"},
	{"internal/merging", []string{"internal/base", "internal/layout", "internal/limits", "internal/session", "internal/turn", "object", "flatbuffers", "split", "btree", "commit", "merge", "storage", "cloudsync"}, nil, "when the heads of an open page come together"},
	{"internal/bridge", []string{"internal/base", "internal/checkup", "internal/clock", "internal/cloudlink", "internal/layout", "internal/merging", "internal/presence", "internal/reclaim", "internal/session", "commit", "merge", "storage", "pageusage", "cloudsync"}, nil, "how packages beside the root reach the engines of what it opened"},
	{"", []string{"btree", "cloudsync", "cloudsync/bucket", "cloudsync/seal", "commit", "flatbuffers", "internal/base", "internal/bridge", "internal/changes", "internal/checkup", "internal/clock", "internal/cloudlink", "internal/gate", "internal/layout", "internal/limits", "internal/merging", "internal/presence", "internal/reclaim", "internal/secret", "internal/session", "internal/turn", "internal/vfs", "merge", "object", "pageusage", "split", "storage", "storage/index"}, nil, "the embedding API and composition root"},
	{"admin", []string{"", "btree", "cloudsync", "cloudsync/bucket", "cloudsync/leak", "cloudsync/seal", "flatbuffers", "gc", "internal/backup", "internal/base", "internal/bridge", "internal/checkup", "internal/cloudlink", "internal/layout", "internal/reclaim", "internal/session", "object", "split", "storage", "storage/segment"}, nil, "what only administrators need, on the engines of a repository"},
	{"keys", []string{"", "cloudsync", "cloudsync/bucket", "cloudsync/seal", "internal/bridge", "internal/cloudlink", "internal/secret"}, nil, "what opens a sealed cloud"},
	{"rules", []string{"", "internal/bridge", "internal/merging", "merge"}, nil, "what becomes of keys that several devices have changed"},
	{"internal/daemon", []string{"internal/base", "internal/clock"}, []string{"golang.org/x/sys/unix"}, "commands run by the process that holds a repository"},
	{"ledgertest", []string{"", "admin"}, nil, "help for tests of apps"},
	{"ordered", []string{"internal/base"}, []string{"github.com/tidwall/btree"}, "sorted rows as record layers see them, wherever they are"},
	{"ordered/pages", []string{"", "ordered"}, nil, "pages as sorted rows"},
	{"metabase", []string{"internal/base", "internal/boltpage", "keyspace", "ordered"}, []string{"go.etcd.io/bbolt", "go.etcd.io/bbolt/errors", "google.golang.org/protobuf/encoding/protowire"}, "catalogues of objects, in sorted rows and in the bbolt files of others"},
	{"metabase/metabasetest", []string{"metabase"}, []string{"google.golang.org/protobuf/encoding/protowire"}, "objects for tests"},
	{"metabase/catalog", []string{"", "metabase", "ordered/pages", "rules"}, nil, "a catalogue on a page, and how it merges"},
	{"internal/diff3", nil, nil, "merging of sequences, whatever they mean"},
	{"permazen/encoding", []string{"internal/base"}, nil, "values as bytes that sort"},
	{"permazen/schema", []string{"internal/base", "permazen/encoding"}, nil, "object types, without knowledge of rows"},
	{"permazen/layout", []string{"internal/base", "ordered", "permazen/encoding", "permazen/schema"}, nil, "which rows stand for objects"},
	{"permazen", []string{"internal/base", "ordered", "permazen/encoding", "permazen/layout", "permazen/schema"}, nil, "typed objects on sorted rows, wherever they are"},
	{"permazen/jsck", []string{"internal/base", "ordered", "permazen/encoding", "permazen/layout", "permazen/schema"}, nil, "checks of rows, without the API whose work it checks"},
	{"permazen/merging", []string{"internal/base", "internal/diff3", "ordered", "permazen/encoding", "permazen/layout", "permazen/schema"}, nil, "merges of rows, wherever they are"},
	{"permazen/pages", []string{"", "ordered", "ordered/pages", "permazen", "permazen/encoding", "permazen/layout", "permazen/merging", "rules"}, nil, "typed objects on pages"},
	{"permazen/internal/dump", []string{"ordered", "permazen/layout"}, nil, "for tests"},
	{"permazen/internal/histories", []string{"internal/base", "permazen"}, []string{"pgregory.net/rapid"}, "for tests"},
	{"indexeddb/internal/wtf8", nil, nil, "strings of scripts as Go strings"},
	{"indexeddb/value", []string{"internal/base", "indexeddb/internal/wtf8"}, []string{"github.com/klauspost/compress/snappy"}, "script values, without knowledge of rows"},
	{"indexeddb", []string{"internal/base", "keyspace", "ordered", "indexeddb/internal/wtf8", "indexeddb/value"}, nil, "the data model of IndexedDB, wherever its rows are"},
	{"indexeddb/idb", []string{"internal/base", "ordered", "indexeddb", "indexeddb/value"}, nil, "the API of IndexedDB on sorted rows, wherever they are"},
	{"indexeddb/merging", []string{"internal/base", "ordered", "indexeddb", "indexeddb/value"}, nil, "merges of rows, wherever they are"},
	{"indexeddb/pages", []string{"", "ordered", "ordered/pages", "indexeddb", "indexeddb/idb", "indexeddb/merging", "rules"}, nil, "databases of IndexedDB on pages"},
	{"indexeddb/profile", []string{"internal/base", "ordered", "indexeddb", "indexeddb/value"}, []string{"github.com/klauspost/compress/snappy", "github.com/klauspost/compress/zstd", "modernc.org/sqlite", "github.com/syndtr/goleveldb/leveldb", "github.com/syndtr/goleveldb/leveldb/errors", "github.com/syndtr/goleveldb/leveldb/iterator", "github.com/syndtr/goleveldb/leveldb/journal", "github.com/syndtr/goleveldb/leveldb/opt", "github.com/syndtr/goleveldb/leveldb/storage", "github.com/syndtr/goleveldb/leveldb/util", "golang.org/x/sys/unix"}, "directories of browsers; the only door to LevelDB and SQLite"},
	{"records", []string{"", "rules"}, nil, "typed collections, through the API that apps have"},
	{"examples/notes", []string{"", "records"}, nil, "what an app looks like"},
	{"filetree", []string{"", "internal/base", "internal/clock"}, []string{"golang.org/x/sys/unix"}, "directory trees as pages, through the API that apps have"},
	{"internal/cli", []string{"", "admin", "keys", "rules", "internal/daemon", "filetree", "metabase", "metabase/catalog", "permazen/jsck", "permazen/pages", "indexeddb", "indexeddb/pages", "indexeddb/profile", "ordered/pages", "cloudsync", "cloudsync/bucket", "internal/base", "internal/clock", "internal/spool"}, []string{"github.com/fsnotify/fsnotify", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term"}, "the commands: parse, call, print"},
	{"cmd/ledgerd", []string{"internal/cli", "cloudsync/bucket", "cloudsync/gcs", "cloudsync/s3"}, nil, "main, which says what buckets there are, and nothing else"},
}

// untested packages hold generated code or only tests.
var unlisted = []string{"flatbuffers/gen", "internal/archtest", "internal/lint", "integration"}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, p := range list(t, module+"/...") {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if slices.ContainsFunc(unlisted, func(u string) bool { return name == u || strings.HasPrefix(name, u+"/") }) {
			continue
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return r.pkg == name })
		if i < 0 {
			t.Errorf("package %q is not in the table: give it a place and a reason", name)
			continue
		}
		r := rules[i]
		for _, imp := range p.Imports {
			if rest, ok := strings.CutPrefix(imp, module); ok {
				if rest = strings.TrimPrefix(rest, "/"); !slices.Contains(r.allow, rest) && !strings.HasPrefix(rest, "flatbuffers/gen") {
					t.Errorf("%q (%s) imports %q, which its row does not allow", name, r.reason, rest)
				}
			} else if strings.Contains(strings.Split(imp, "/")[0], ".") && !slices.Contains(r.extern, imp) {
				t.Errorf("%q (%s) imports %q, which its row does not allow", name, r.reason, imp)
			}
		}
	}
}

// TestBridge asks that only the root and the packages beside it reach the engines by the bridge,
// and that the root alone connects it.
func TestBridge(t *testing.T) {
	for _, r := range rules {
		if slices.Contains(r.allow, "internal/bridge") && !slices.Contains([]string{"", "admin", "keys", "rules"}, r.pkg) {
			t.Errorf("%q may import the bridge", r.pkg)
		}
	}
	for _, dir := range []string{"admin", "keys", "rules"} {
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "bridge.Connect") {
				t.Errorf("%s connects the bridge, as the root alone may", f)
			}
		}
	}
}

func TestTableNamesWhatExists(t *testing.T) {
	var names []string
	for _, p := range list(t, module+"/...") {
		names = append(names, strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/"))
	}
	for _, r := range rules {
		if !slices.Contains(names, r.pkg) {
			t.Errorf("the table has %q, which does not exist", r.pkg)
		}
	}
}

// TestCoreLinksNoCloudClient keeps the heavy client out of programs that do not ask for it.
func TestCoreLinksNoCloudClient(t *testing.T) {
	for _, pkg := range []string{module, module + "/internal/cli", module + "/cloudsync", module + "/cloudsync/dir", module + "/cloudsync/seal"} {
		for _, p := range list(t, "-deps", pkg) {
			cloud := strings.HasPrefix(p.ImportPath, "google.golang.org/") && !strings.HasPrefix(p.ImportPath, "google.golang.org/protobuf/")
			if cloud || strings.HasPrefix(p.ImportPath, "cloud.google.com/") || strings.HasPrefix(p.ImportPath, "github.com/minio/minio-go/") {
				t.Errorf("%s links %s", pkg, p.ImportPath)
			}
		}
	}
}

// TestCoreLinksNoHTTP keeps programs without a cloud small.
func TestCoreLinksNoHTTP(t *testing.T) {
	for _, p := range list(t, "-deps", module) {
		if p.ImportPath == "net/http" || p.ImportPath == "crypto/tls" {
			t.Errorf("the core links %s", p.ImportPath)
		}
	}
}

// TestCoreLinksNoBrowserFormats keeps drivers that only tools need out of apps.
func TestCoreLinksNoBrowserFormats(t *testing.T) {
	for _, pkg := range []string{module, module + "/indexeddb"} {
		for _, p := range list(t, "-deps", pkg) {
			if strings.HasPrefix(p.ImportPath, "github.com/syndtr/") || strings.HasPrefix(p.ImportPath, "modernc.org/") {
				t.Errorf("%s links %s", pkg, p.ImportPath)
			}
		}
	}
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
