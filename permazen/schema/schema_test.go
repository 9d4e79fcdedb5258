package schema_test

import (
	"bytes"
	"compress/zlib"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t testing.TB, document []byte) *schema.Model {
	t.Helper()
	m, err := schema.Parse(document)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestReference: identities, numbers and the document are those of the reference.
func TestReference(t *testing.T) {
	m := parse(t, read(t, "schemaA.xml"))
	table := map[string]uint32{}
	m.Number(table)
	byNumber := map[string]string{}
	for id, n := range table {
		byNumber[itoa(n)] = id
	}
	for line := range strings.Lines(string(read(t, "schemas.txt"))) {
		switch f := strings.Fields(line); f[0] {
		case "schema":
			if m.ID() != f[2] {
				t.Errorf("schema is %s, want %s", m.ID(), f[2])
			}
		case "storage":
			if byNumber[f[1]] != f[2] {
				t.Errorf("item %s is %s, want %s", f[1], byNumber[f[1]], f[2])
			}
		}
	}
	if want := stored(t); m.XML() != want {
		t.Error(cmp.Diff(m.XML(), want))
	}
	if !parse(t, []byte(m.XML())).Equal(m) {
		t.Error("the document is another model")
	}
}

func itoa(n uint32) string {
	var b []byte
	for ; n > 0; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
	}
	return string(b)
}

// stored returns the document that the reference has in a database.
func stored(t *testing.T) string {
	for line := range strings.Lines(string(read(t, "01-empty-schemaA.kv"))) {
		if f := strings.Fields(line); f[0] == "000101" {
			b, err := hex.DecodeString(f[1])
			if err != nil {
				t.Fatal(err)
			}
			r, err := zlib.NewReader(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			x, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(x)
		}
	}
	t.Fatal("no schema")
	return ""
}

const fieldID = `encoding="urn:fdc:permazen.io:2020:int"`

// TestInvalid: what no model may have.
func TestInvalid(t *testing.T) {
	for name, body := range map[string]string{
		"two types":             `<ObjectType name="A"/><ObjectType name="A"/>`,
		"two fields":            `<ObjectType name="A"><CounterField name="c"/><CounterField name="c"/></ObjectType>`,
		"bad name":              `<ObjectType name="1A"/>`,
		"no name":               `<ObjectType/>`,
		"unknown encoding":      `<ObjectType name="A"><SimpleField name="f" encoding="x"/></ObjectType>`,
		"remove in an object":   `<ObjectType name="A"><ReferenceField name="r" inverseDelete="REMOVE"/></ObjectType>`,
		"ignore, not allowed":   `<ObjectType name="A"><ReferenceField name="r" inverseDelete="IGNORE" allowDeleted="false"/></ObjectType>`,
		"unknown type":          `<ObjectType name="A"><ReferenceField name="r"><ObjectTypes><ObjectType name="B"/></ObjectTypes></ReferenceField></ObjectType>`,
		"enum with null":        `<ObjectType name="A"><EnumField name="e"><Identifier>null</Identifier></EnumField></ObjectType>`,
		"enum twice":            `<ObjectType name="A"><EnumField name="e"><Identifier>X</Identifier><Identifier>X</Identifier></EnumField></ObjectType>`,
		"set without element":   `<ObjectType name="A"><SetField name="s"/></ObjectType>`,
		"set of counters":       `<ObjectType name="A"><SetField name="s"><CounterField/></SetField></ObjectType>`,
		"index of one field":    `<ObjectType name="A"><SimpleField name="f" ` + fieldID + `/><CompositeIndex name="x"><Field name="f"/></CompositeIndex></ObjectType>`,
		"index of unknown":      `<ObjectType name="A"><SimpleField name="f" ` + fieldID + `/><CompositeIndex name="x"><Field name="f"/><Field name="g"/></CompositeIndex></ObjectType>`,
		"number of two items":   `<ObjectType name="A" storageId="5"/><ObjectType name="B" storageId="5"/>`,
		"unknown element":       `<Thing/>`,
		"number out of range":   `<ObjectType name="A" storageId="99999999999"/>`,
		"number that is none":   `<ObjectType name="A" storageId="x"/>`,
		"unknown delete action": `<ObjectType name="A"><ReferenceField name="r" inverseDelete="X"/></ObjectType>`,
	} {
		if _, err := schema.Parse([]byte("<Schema>" + body + "</Schema>")); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, s := range []string{"", "<Schema>", "<Schema/><Schema/>", "x", "\x00"} {
		if _, err := schema.Parse([]byte(s)); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, body := range []string{strings.Repeat(`<ObjectType name="A"/>`, schema.MaxItems+1), strings.Repeat("<a/>", schema.MaxElements), strings.Repeat(" ", schema.MaxXML)} {
		if _, err := schema.Parse([]byte("<Schema>" + body + "</Schema>")); !errors.Is(err, base.ErrTooLarge) && !errors.Is(err, base.ErrInvalid) {
			t.Error(err)
		}
	}
	if _, err := schema.Parse([]byte(`<Schema formatVersion="7"/>`)); !errors.Is(err, base.ErrUnsupported) {
		t.Error(err)
	}
}

// TestHostileDocuments: the memory for a document is bounded by its length.
func TestHostileDocuments(t *testing.T) {
	deep := encoding.Prefix + "int" + strings.Repeat("[]", encoding.MaxDimensions)
	fields := ""
	for i := range 100 {
		fields += fmt.Sprintf(`<SimpleField name="f%d" encoding="%s"/>`, i, deep)
	}
	if _, err := schema.Parse([]byte(`<Schema><ObjectType name="A">` + fields + "</ObjectType></Schema>")); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("many dimensions: %v", err)
	}
	parts := []byte(`<Schema>` + strings.Repeat("a<!---->", 20_000) + "</Schema>")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := schema.Parse(parts); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(100*len(parts)) {
		t.Errorf("%d bytes of memory for a document of %d", n, len(parts))
	}
}

// TestNumbers: what is in the table stays, explicit numbers come first, others fill holes.
func TestNumbers(t *testing.T) {
	m := parse(t, []byte(`<Schema><ObjectType name="A"><CounterField name="c"/></ObjectType><ObjectType name="B" storageId="2"/></Schema>`))
	table := map[string]uint32{"SimpleField_x": 1}
	m.Number(table)
	got := []uint32{}
	for _, id := range m.IDs() {
		got = append(got, table[id])
	}
	if diff := cmp.Diff(got, []uint32{3, 4, 2}); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(string(read(f, "schemaA.xml")))
	f.Add(`<Schema><ObjectType name="A" storageId="5"><EnumArrayField name="e" dimensions="2"><Identifier>X</Identifier></EnumArrayField></ObjectType></Schema>`)
	f.Fuzz(func(t *testing.T, s string) {
		m, err := schema.Parse([]byte(s))
		if err != nil {
			return
		}
		again, err := schema.Parse([]byte(m.XML()))
		if err != nil {
			t.Fatalf("%v\n%s", err, m.XML())
		}
		if again.XML() != m.XML() || again.ID() != m.ID() {
			t.Fatalf("%s\n%s", again.XML(), m.XML())
		}
	})
}
