package profile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/ordered"
)

// fill makes databases with keys and values of all types, indexes of all kinds, stale index rows,
// blobs, and values that the browser compresses and wraps.
const fill = `
const rnd = n => { const a = new Uint8Array(n); for (let i = 0; i < n; i += 65536) crypto.getRandomValues(a.subarray(i, i + 65536)); return a; };
const db = await open('main', 3, (db, tx) => {
  db.createObjectStore('outline');
  const p = db.createObjectStore('people', {keyPath: 'id', autoIncrement: true});
  p.createIndex('byName', 'name'); p.createIndex('byEmail', 'email', {unique: true});
  p.createIndex('byTag', 'tags', {multiEntry: true}); p.createIndex('byBoth', ['name', 'addr.city']);
  p.createIndex('byId', 'id'); p.createIndex('byLength', 'name.length');
  db.createObjectStore('auto', {autoIncrement: true});
  const g = db.createObjectStore('given', {keyPath: 'a.id', autoIncrement: true}); g.createIndex('id', 'a.id'); g.createIndex('both', ['a.id', 'n']); g.createIndex('a', 'a');
  const f = db.createObjectStore('files', {keyPath: ['k', 'f.n']}); f.createIndex('bySize', 'b.size'); f.createIndex('byFileName', 'b.name');
  db.createObjectStore('gone').createIndex('i', 'a'); db.deleteObjectStore('gone');
  db.createObjectStore('\ud83d \u00e9 name'); db.createObjectStore('vals'); db.createObjectStore('empty');
});
const tx = db.transaction(['outline', 'people', 'auto', 'given', 'files', 'vals'], 'readwrite');
const end = finished(tx);
const o = tx.objectStore('outline');
const keys = [-Infinity, -1, -0.5, 0, 1, 1.5, 1e308, Infinity, new Date(0), new Date(-1), new Date(8.64e15), '', 'a', 'ab', '\u0000', '\ud83d', '\ud83d\ude00', '\uffff',
  new Uint8Array([]), new Uint8Array([0, 255]), [], [1], [1, 'x', [new Date(5), new Uint8Array([7])]], 'x'.repeat(3000), 'x'.repeat(3000) + 'y', ['k'.repeat(2500), 'k'.repeat(2500)]];
keys.forEach((k, i) => o.put({i}, k));
const p = tx.objectStore('people');
p.put({name: 'Ann', email: 'a@x', tags: ['a', 'b', 'b', 5, null, ['n']], addr: {city: 'Riga'}});
p.put({name: 'Bob', email: 'b@x', tags: 'single'});
p.put({name: 'Cid', tags: []}); p.put({id: 50, name: 'Fifty', addr: {city: 'Oslo'}, email: '50@x'}); p.put({name: 'long'.repeat(2000)});
p.put({id: 1, name: 'Anna', email: 'anna@x', tags: ['c']}); p.delete(2); p.put({id: 'text'});
const a = tx.objectStore('auto'); for (let i = 0; i < 20; i++) a.add('v' + i); a.delete(3);
const g = tx.objectStore('given'); for (const a of [new Map([[1, 2]]), new Date(0), new ArrayBuffer(3), new Blob(['x']), new Error('m'), /x/, new Number(5), [1], {}, new DOMRect()]) g.put({a, n: 1});
const f = tx.objectStore('files');
f.put({k: 1, f: {n: 1}, b: new Blob(['hello blob'], {type: 'text/plain'})});
f.put({k: 2, f: {n: 'x'}, b: new File(['file content'], 'n\u00e4me.txt', {type: 'text/x', lastModified: 1600000000123})});
f.put({k: 3, f: {n: 1}, b: new Blob([])}); f.put({k: 4, f: {n: 1}, l: [new Blob([rnd(300000)]), new Blob(['2'])]});
f.put({k: 5, f: {n: 1}, big: rnd(90000)}); f.put({k: 6, f: {n: 1}, text: 'y'.repeat(200000)}); f.put({k: 7, f: {n: 1}, big: rnd(70000), b: new Blob(['with'])});
const v = tx.objectStore('vals');
const shared = {s: 1}, cyc = {name: 'cyc'}; cyc.self = cyc; cyc.arr = [cyc];
const buf = new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]).buffer;
const vals = {u: undefined, n: null, t: true, neg: -1, big: 2147483648, f: 1.5, nz: -0, nan: NaN, bi: 123456789012345678901234567890n, nbi: -5n,
  s: 'ascii', l: 'caf\u00e9', w: '\u043a\u043e\u0442 \ud83d\ude00', lone: 'a\ud800b', d: new Date(1234567890123), bd: new Date(NaN), re: /a+b/dgimsuy, rv: /[a--b]/v,
  map: new Map([[1, 'a'], ['k', {z: 1}]]), set: new Set([1, 'x', [2]]), ab: buf, dv: new DataView(buf, 1, 4), u8: new Uint8Array(buf, 2, 3), f64: new Float64Array([1.5, -2]),
  two: [new Uint8Array(buf, 0, 2), new Uint8Array(buf, 4, 2)], err: new TypeError('boom', {cause: 'c'}), sparse: (() => { const x = [1, , 3]; x[10] = 't'; return x; })(),
  dense: [1, 'x', null, undefined, true], cyc, shared: [shared, shared], box: [new Boolean(true), new Number(3.5), new String('boxed'), Object(7n)],
  img: new ImageData(2, 1), rect: new DOMRect(1, 2, 3, 4), pt: new DOMPoint(1, 2, 3, 4), mat: new DOMMatrix([1, 2, 3, 4, 5, 6]), ex: new DOMException('m', 'AbortError'),
  resizable: new ArrayBuffer(4, {maxByteLength: 16}), obj: {1: 'idx', a: 1, b: {c: {}}}};
for (const [k, x] of Object.entries(vals)) v.put(x, k);
await end;
const two = await open('second \u0434\u0431', 1, db => { const s = db.createObjectStore('s', {keyPath: ''}); s.put('v'); });
two.close(); db.close();
return keys.length;
`

// live does what apps do over months, drawn from the seed of a number: records come, change
// and go in many transactions, of which some are aborted; upgrades create, rename and delete object
// stores and indexes, and databases are deleted. What is written is some MB, so that the browser
// makes tables of it.
const live = `
let state = %d; const rnd = n => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return (state >>> 8) %% n; };
const pick = a => a[rnd(a.length)];
const bytes = n => Uint8Array.from({length: n}, () => rnd(256));
const key = depth => { switch (rnd(depth > 2 ? 6 : 8)) {
  case 0: return rnd(40); case 1: return rnd(40) - 20.5; case 2: return new Date(rnd(9)); case 3: return 's' + rnd(30); case 4: return bytes(rnd(3));
  case 5: return pick(['', '\ud800', '\uffff', '\ud83d\ude00', 'long'.repeat(700) + rnd(3), -Infinity]);
  default: return Array.from({length: rnd(3)}, () => key(depth + 1)); } };
const val = () => { const o = {k: key(0), n: rnd(50), t: Array.from({length: rnd(5)}, () => key(1)), a: {b: key(1)}, note: 'n'.repeat(rnd(300))};
  if (!rnd(3)) delete o.k; if (!rnd(9)) o.self = o; if (!rnd(9)) o.blob = pick([new Blob([bytes(rnd(999))]), new File(['f'.repeat(rnd(99))], 'f' + rnd(9), {lastModified: rnd(1e6)})]);
  if (!rnd(40)) o.big = bytes(60000 + rnd(9000)); if (!rnd(40)) o.text = 'text '.repeat(20000); if (!rnd(9)) o.id = key(0); return o; };
const paths = [['k', {}], ['n', {}], ['t', {multiEntry: true}], ['u', {unique: true}], [['n', 'a.b'], {}], ['blob.size', {}], ['note.length', {}]];
let version = 1, serial = 0;
const upgrade = (db, tx) => {
  for (let i = 0; i < 2; i++) if (db.objectStoreNames.length < 5) {
    const s = db.createObjectStore('store ' + serial++, pick([{}, {autoIncrement: true}, {keyPath: 'id', autoIncrement: true}, {keyPath: 'n'}, {keyPath: ['n', 'a.b']}]));
    s.createIndex('n' + serial++, 'n');
  }
  for (const name of [...db.objectStoreNames]) { const s = tx.objectStore(name);
    if (!rnd(8)) { db.deleteObjectStore(name); continue; }
    if (!rnd(4)) s.name = 'renamed ' + serial++;
    for (const i of [...s.indexNames]) { if (!rnd(5)) s.deleteIndex(i); else if (!rnd(5)) s.index(i).name = 'index ' + serial++; }
    if (s.indexNames.length < 5) { const [p, o] = pick(paths); s.createIndex('i' + serial++, p, o); }
  }
};
const quiet = r => { r.onerror = e => { e.preventDefault(); e.stopPropagation(); }; };
let db = await open('life', version, upgrade);
for (let round = 0; round < 120; round++) {
  if (round %% 12 == 11) { db.close(); db = await open('life', ++version, upgrade); }
  if (round %% 40 == 20) { (await open('short ' + round, 1, d => d.createObjectStore('s').put(new Blob(['gone']), 1))).close(); await done(indexedDB.deleteDatabase('short ' + round)); }
  const names = [...db.objectStoreNames]; if (!names.length) continue;
  const tx = db.transaction(names, 'readwrite'); const end = finished(tx).catch(() => {});
  for (let i = 0; i < 60; i++) { const s = tx.objectStore(pick(names));
    try { switch (rnd(12)) {
      case 0: quiet(s.delete(key(0))); break;
      case 1: if (!rnd(20)) quiet(s.clear()); break;
      case 2: quiet(s.delete(IDBKeyRange.bound(rnd(20), 20 + rnd(3)))); break;
      case 3: { const c = s.openCursor(); quiet(c); let n = rnd(5); c.onsuccess = () => { const at = c.result; if (!at || !n--) return; try { if (rnd(2)) quiet(at.update({...at.value, n2: rnd(5)})); else quiet(at.delete()); at.continue(); } catch (e) { } }; break; }
      default: { const v = val(); const k = s.keyPath === null && (!s.autoIncrement || rnd(2)) ? [key(0)] : []; quiet(rnd(3) ? s.put(v, ...k) : s.add(v, ...k)); } } } catch (e) { if (!(e instanceof DOMException)) throw e; } }
  if (!rnd(10)) setTimeout(() => { try { tx.abort(); } catch (e) { } }, 0);
  await end;
}
db.close();
return serial;
`

// dump returns all that a script can see of all databases.
const dump = `
const seen = []; const hex = b => Array.from(new Uint8Array(b), x => x.toString(16).padStart(2, '0')).join('');
const units = s => Array.from({length: s.length}, (_, i) => s.charCodeAt(i).toString(16)).join(' ');
const digest = async b => hex(await crypto.subtle.digest('SHA-256', new Uint8Array(b).slice()));
const tag = async v => {
  if (v === undefined) return 'undefined'; if (v === null) return 'null';
  if (typeof v === 'bigint') return v + 'n'; if (typeof v === 'number') return Object.is(v, -0) ? '-0' : String(v);
  if (typeof v === 'string') return v.length > 200 ? 'long ' + v.length + await digest(new TextEncoder().encode(v)) : '"' + units(v);
  if (typeof v !== 'object') return String(v);
  if (seen.includes(v)) return {ref: seen.indexOf(v)}; seen.push(v);
  const kind = Object.prototype.toString.call(v).slice(8, -1);
  if (v instanceof Date) return kind + v.getTime(); if (v instanceof RegExp) return String(v);
  if (v instanceof ArrayBuffer) return [kind, v.byteLength, v.resizable, await digest(v)];
  if (ArrayBuffer.isView(v)) return [kind, v.byteOffset, v.byteLength, await digest(v.buffer)];
  if (v instanceof Blob) return [kind, v.type, v.size, v.name, v.lastModified, await digest(await v.arrayBuffer())];
  if (v instanceof Map) { const out = [kind]; for (const [k, x] of v) out.push(await tag(k), await tag(x)); return out; }
  if (v instanceof Set) { const out = [kind]; for (const x of v) out.push(await tag(x)); return out; }
  if (v instanceof Error || v instanceof DOMException) return [kind, v.name, v.message, await tag(v.cause)];
  if (v instanceof ImageData) return [kind, v.width, v.height, hex(v.data)];
  if (v instanceof Boolean || v instanceof Number || v instanceof String || kind === 'BigInt') return [kind, String(v)];
  if (v.toJSON) return [kind, v.toJSON()];
  const out = {kind, length: v.length}; for (const k of Object.keys(v)) out['p' + units(k)] = await tag(v[k]); return out;
};
const all = async (s, next) => { const out = []; for (const x of s) out.push(await next(x)); return out; };
const out = [];
for (const {name, version} of (await indexedDB.databases()).sort((a, b) => a.name < b.name ? -1 : 1)) {
  const db = await open(name); const d = {name: units(name), version, stores: []}; out.push(d);
  for (const n of db.objectStoreNames) {
    const st = db.transaction(n).objectStore(n);
    const s = {name: units(n), keyPath: st.keyPath, auto: st.autoIncrement, indexes: []}; d.stores.push(s);
    const [keys, values] = await Promise.all([done(st.getAllKeys()), done(st.getAll())]);
    s.keys = await all(keys, tag); s.values = await all(values, async v => { seen.length = 0; return tag(v); });
    for (const i of st.indexNames) {
      const read = () => db.transaction(n).objectStore(n).index(i); const x = read();
      const e = {name: units(i), keyPath: x.keyPath, unique: x.unique, multi: x.multiEntry, rows: []}; s.indexes.push(e);
      const rows = []; await new Promise((ok, no) => { const c = read().openKeyCursor(); c.onerror = () => no(c.error); c.onsuccess = () => { if (!c.result) return ok(); rows.push([c.result.key, c.result.primaryKey]); c.result.continue(); }; });
      for (const [k, p] of rows) e.rows.push([await tag(k), await tag(p)]);
    }
  }
  db.close();
}
return out;
`

// levelDir is the directory of the origin.
func (b *browser) levelDir() string {
	found, err := profile.Find(b.indexedDB())
	if err != nil || len(found) != 1 {
		b.t.Fatalf("%v, error %v", found, err)
	}
	return found[0].Path
}

// TestBrowserLives: after long use, too, a page has what the browser shows, and gives it back.
func TestBrowserLives(t *testing.T) {
	for seed := range tier.Of(2, 4, 12) {
		sqlite, clean := seed%2 == 1, seed%4 > 1
		t.Run(fmt.Sprintf("%d sqlite=%t clean=%t", seed, sqlite, clean), func(t *testing.T) {
			b := newBrowser(t)
			b.sqlite = sqlite
			b.run(fmt.Sprintf(live, 7*seed+1), clean, nil)
			page, checked := importPage(t, b.levelDir())
			t.Logf("%+v", checked)
			// A browser that is killed may lose what it wrote last.
			if checked.Records < 50 || (checked.StaleIndexRows == 0) != sqlite || checked.Opaque > 0 {
				t.Errorf("%+v", checked)
			}
			b.exchanged(page)
		})
	}
}

// exchanged puts what is exported from a page in place of the directory, in which the browser has
// to read the same then.
func (b *browser) exchanged(page ordered.Reader) {
	b.t.Helper()
	var before, after json.RawMessage
	b.run(dump, true, &before)
	dir := b.levelDir()
	remove := []error{os.RemoveAll(dir)}
	if !b.sqlite {
		remove = append(remove, os.RemoveAll(blobsOf(dir)))
	}
	if err := errors.Join(remove...); err != nil {
		b.t.Fatal(err)
	}
	exported, err := profile.Export(b.t.Context(), page, b.indexedDB(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if exported.Path != dir && !b.sqlite {
		b.t.Errorf("exported to %s, the browser has %s", exported.Path, dir)
	}
	b.sqlite = false
	again, _ := importPage(b.t, b.levelDir())
	comparePages(b.t, page, again)
	b.run(dump, true, &after)
	if len(before) < 1000 {
		b.t.Errorf("the browser says only %s", before)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		b.t.Error(diff)
	}
}

// TestBrowserRoundTrip: what a browser wrote comes to a page, and from there to a directory in
// which the browser reads the same. That holds after a clean end, and after the browser was killed.
func TestBrowserRoundTrip(t *testing.T) {
	for _, clean := range endings() {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			b := newBrowser(t)
			b.run(fill, clean, nil)
			page, checked := importPage(t, b.levelDir())
			if checked.Opaque != 0 || checked.Blobs < 7 || checked.StaleIndexRows == 0 || checked.Records < 90 {
				t.Errorf("%+v", checked)
			}
			b.exchanged(page)
			b.run(`const db = await open('main'); const tx = db.transaction(['people', 'auto', 'files'], 'readwrite'); const end = finished(tx);
				tx.objectStore('people').put({name: 'New', email: 'new@x', tags: ['n']}); tx.objectStore('auto').add('next'); tx.objectStore('files').put({k: 9, f: {n: 1}, b: new Blob(['new'])});
				await end; db.close();`, true, nil)
			importPage(t, b.levelDir())
		})
	}
}

// TestLockedByBrowser: a directory that a browser has open is refused, and is no damage.
func TestLockedByBrowser(t *testing.T) {
	for _, sqlite := range []bool{false, true} {
		b := newBrowser(t)
		b.sqlite = sqlite
		goOn := &profile.Options{Damage: func(err error) error {
			t.Errorf("sqlite=%t: damage: %v", sqlite, err)
			return nil
		}}
		b.during = func() {
			_, err := profile.Open(t.Context(), b.levelDir(), goOn)
			if locked, ok := errors.AsType[*base.LockedError](err); !ok || locked.PID == 0 {
				t.Errorf("sqlite=%t: %v", sqlite, err)
			}
		}
		b.run(`window.db = await open('held', 1, db => db.createObjectStore('s'));`, true, nil)
		p, err := profile.Open(t.Context(), b.levelDir(), goOn)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func blobsOf(dir string) string {
	return dir[:len(dir)-len(".indexeddb.leveldb")] + ".indexeddb.blob"
}

// importPage checks a directory and imports it into memory.
func importPage(t *testing.T, dir string) (*ordered.Memory, profile.Result) {
	t.Helper()
	p, err := profile.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	checked, err := p.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page := ordered.NewMemory()
	imported, err := p.Import(t.Context(), page)
	if err != nil {
		t.Fatal(err)
	}
	imported.Opaque = checked.Opaque
	onPage, err := profile.OpenPage(t.Context(), page, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := onPage.Check(t.Context())
	if err != nil {
		t.Error(err)
	}
	again.StaleIndexRows = checked.StaleIndexRows // pages have none
	if diff := cmp.Diff(checked, again); diff != "" {
		t.Errorf("checked in the directory and on the page:\n%s", diff)
	}
	if diff := cmp.Diff(checked, imported); diff != "" {
		t.Errorf("checked and imported:\n%s", diff)
	}
	return page, checked
}

func comparePages(t *testing.T, a, b ordered.Reader) {
	t.Helper()
	var rows [2]map[string]string
	for i, r := range []ordered.Reader{a, b} {
		rows[i] = map[string]string{}
		for row, err := range ordered.Rows(t.Context(), r, ordered.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			rows[i][fmt.Sprintf("%x", row.Key)] = fmt.Sprintf("%x", row.Value)
		}
	}
	if diff := cmp.Diff(rows[0], rows[1]); diff != "" {
		t.Error(diff)
	}
}
