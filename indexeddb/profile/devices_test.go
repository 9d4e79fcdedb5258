package profile_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/cli"
)

// ledgerd runs the tool on the repository of a device, and returns what it prints.
func ledgerd(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var out, problems bytes.Buffer
	code := cli.Main(t.Context(), cli.Process{
		Args: append([]string{"--dir", dir}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems,
		LookupEnv: func(string) (string, bool) { return "", false },
	})
	if code != 0 {
		t.Fatalf("ledgerd %s: exit code %d: %s", strings.Join(args, " "), code, &problems)
	}
	return out.String()
}

// people makes a database, which all devices have.
const people = `
const db = await open('main', 1, db => {
  const p = db.createObjectStore('people', {keyPath: 'id', autoIncrement: true});
  p.createIndex('byEmail', 'email', {unique: true}); p.createIndex('byTag', 'tags', {multiEntry: true});
  db.createObjectStore('files'); db.createObjectStore('outdated');
});
const tx = db.transaction(['people', 'files', 'outdated'], 'readwrite'); const end = finished(tx);
const p = tx.objectStore('people');
for (const name of ['ann', 'bob', 'cid', 'dan']) p.add({name, email: name + '@x', tags: [name[0], 'all']});
tx.objectStore('files').put(new Blob(['first'], {type: 'text/plain'}), 'one'); tx.objectStore('outdated').put(1, 1);
await end; db.close();
`

// atHome and away are what two people do on their devices, which do not know of each other.
const atHome = `
const db = await open('main');
const tx = db.transaction(['people', 'files'], 'readwrite'); const end = finished(tx);
const p = tx.objectStore('people');
const ann = await done(p.get(1)); ann.email = 'ann@home'; ann.tags = ['home']; p.put(ann);
p.delete(4); p.add({name: 'eve', email: 'eve@x', tags: ['home']}); p.add({name: 'same', email: 'same@x'});
tx.objectStore('files').put(new Blob(['from home']), 'home');
await end; db.close();
`

const away = `
const db = await open('main', 2, (db, tx) => { tx.objectStore('people').createIndex('byName', 'name'); db.deleteObjectStore('outdated'); db.createObjectStore('away'); });
const tx = db.transaction(['people', 'files', 'away'], 'readwrite'); const end = finished(tx);
const p = tx.objectStore('people');
const bob = await done(p.get(2)); bob.tags = ['away', 'all']; p.put(bob);
p.add({name: 'fay', email: 'fay@x', tags: ['away']});
tx.objectStore('files').put(new Blob(['from away']), 'away'); tx.objectStore('away').put('there', 'here');
await end; db.close();
`

// told returns what the database has after both have come together.
const told = `
const db = await open('main'); const out = {version: db.version, stores: [...db.objectStoreNames]};
const tx = db.transaction(['people', 'files', 'away']);
const p = tx.objectStore('people'); const names = rows => rows.map(r => r.name).sort().join(' ');
out.people = (await done(p.getAll())).map(r => r.name + ' ' + r.email + ' ' + (r.tags || []).join('+')).sort();
out.ids = (await done(p.getAllKeys())).length;
out.home = names(await done(p.index('byTag').getAll('home'))); out.all = names(await done(p.index('byTag').getAll('all'))); out.away = names(await done(p.index('byTag').getAll('away')));
out.old = await done(p.index('byEmail').count('ann@x')); out.email = (await done(p.index('byEmail').get('ann@home'))).name;
out.named = (await done(p.index('byName').getAllKeys())).length; out.next = 0;
const f = tx.objectStore('files'); const keys = await done(f.getAllKeys()), blobs = await done(f.getAll());
out.files = await Promise.all(keys.map(async (k, i) => k + ': ' + await blobs[i].text()));
db.close();
const again = await open('main'); const add = again.transaction('people', 'readwrite'); const end = finished(add);
out.next = await done(add.objectStore('people').add({name: 'next'})); await end; again.close();
return out;
`

// story returns the blocks of commands of the README about a browser on two devices.
func story(t *testing.T) (blocks [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, ok := strings.Cut(string(text), "a browser's databases on two devices")
	if !ok {
		t.Fatal("the README does not have the story")
	}
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	inside := false
	for line := range strings.SplitSeq(chapter, "\n") {
		line, is := strings.CutPrefix(line, "    ")
		if is && !inside {
			blocks = append(blocks, nil)
		}
		if inside = is; is {
			line, _, _ = strings.Cut(line, "  #")
			blocks[len(blocks)-1] = append(blocks[len(blocks)-1], strings.TrimSpace(line))
		}
	}
	return blocks
}

// tell runs commands as a shell does, where said are the variables and profiles those that the
// devices call PROFILE.
func tell(t *testing.T, commands []string, said, profiles map[string]string) {
	t.Helper()
	for _, command := range commands {
		variable, inner, is := strings.Cut(command, "=$(")
		if is {
			command = strings.TrimSuffix(inner, ")")
		}
		for name, value := range said {
			command = strings.ReplaceAll(command, name, value)
		}
		words := strings.Fields(command)
		if len(words) < 4 || words[0] != "ledgerd" || words[1] != "--dir" {
			t.Fatalf("the README has the command %q", command)
		}
		for i, word := range words {
			words[i] = strings.Replace(word, "PROFILE", profiles[words[2]], 1)
		}
		out := ledgerd(t, words[2], words[3:]...)
		if is {
			said["$"+variable] = strings.TrimSpace(out)
		}
	}
}

// TestTwoDevices runs the commands of the README as they stand there: a browser's databases come to
// a second device, both change them, and a browser on either opens what came of it.
func TestTwoDevices(t *testing.T) {
	b := newBrowser(t)
	work := t.TempDir()
	home, second := b.profile, t.TempDir()
	a, c := filepath.Join(work, "a"), filepath.Join(work, "b")
	blocks := story(t)
	if len(blocks) != 2 {
		t.Fatalf("the README has %d blocks of commands", len(blocks))
	}
	said := map[string]string{"$T": work, "OTHER": t.TempDir()}
	b.run(people, true, nil)
	tell(t, blocks[0], said, map[string]string{a: home, c: second})
	b.profile = second
	b.run(away, true, nil)
	b.profile = home
	b.run(atHome, false, nil)
	tell(t, blocks[1], said, map[string]string{a: home, c: second})
	var want struct {
		Version         int
		Stores, People  []string
		IDs             int
		Home, All, Away string
		Old             int
		Email           string
		Named           int
		Next            int
		Files           []string
	}
	want.Version, want.Stores = 2, []string{"away", "files", "people"}
	want.People = []string{"ann ann@home home", "bob bob@x away+all", "cid cid@x c+all", "eve eve@x home", "fay fay@x away", "same same@x "}
	want.IDs, want.Named, want.Next = 6, 6, 8
	want.Home, want.All, want.Away, want.Email = "ann eve", "bob cid", "bob fay", "ann"
	want.Files = []string{"away: from away", "home: from home", "one: first"}
	for name, dir := range map[string]string{"first": a, "second": c} {
		if out := ledgerd(t, dir, "indexeddb", "check", "app/db"); !strings.Contains(out, "verified") {
			t.Errorf("check on the %s device says %q", name, out)
		}
		b.profile = t.TempDir()
		ledgerd(t, dir, "indexeddb", "export", "app/db", b.indexedDB())
		got := want
		got.Stores, got.People, got.Files = nil, nil, nil
		var answer json.RawMessage
		b.run(told, true, &answer)
		if err := json.Unmarshal(answer, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a browser on the %s device:\n%s\n%s", name, diff, answer)
		}
	}
}
