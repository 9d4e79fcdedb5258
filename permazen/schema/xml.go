package schema

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
)

const header = `<?xml version="1.0" encoding="UTF-8"?>`

// Bounds of the documents that Parse accepts: length in bytes and number of elements.
const (
	MaxXML      = 16 << 20
	MaxElements = 1 << 18
)

// maxDepth bounds the nesting of elements. A map of references that are limited to types has 6
// levels.
const maxDepth = 8

// XML returns the canonical document of the model. It has no white space between elements and ends
// with a line feed.
func (m *Model) XML() string {
	var w writer
	w.write(header)
	w.open(schemaCode)
	for _, t := range m.Types {
		w.objectType(t)
	}
	w.end(schemaCode, len(m.Types) == 0)
	return string(w.b) + "\n"
}

type writer struct{ b []byte }

func (w *writer) write(s string) { w.b = append(w.b, s...) }

// open writes a start tag with attributes. It omits attributes with empty values.
func (w *writer) open(tag string, attributes ...string) {
	w.write("<" + tag)
	for i := 0; i < len(attributes); i += 2 {
		if attributes[i+1] != "" {
			w.write(" " + attributes[i] + `="` + escaper.Replace(attributes[i+1]) + `"`)
		}
	}
	w.write(">")
}

// end writes an end tag, or turns the start tag into an empty element.
func (w *writer) end(tag string, empty bool) {
	if !empty {
		w.write("</" + tag + ">")
		return
	}
	w.b = append(w.b[:len(w.b)-1], "/>"...)
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func number(n uint32) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

func flag(b bool) string {
	if b {
		return "true"
	}
	return ""
}

func (w *writer) objectType(t *ObjectType) {
	w.open(typeCode, "storageId", number(t.StorageID), "name", t.Name)
	for _, f := range t.Fields {
		w.field(f, f.Name)
	}
	for _, x := range t.Indexes {
		w.open(indexCode, "storageId", number(x.StorageID), "name", x.Name)
		for _, name := range x.Fields {
			w.open("Field", "name", name)
			w.end("Field", true)
		}
		w.end(indexCode, false)
	}
	w.end(typeCode, len(t.Fields)+len(t.Indexes) == 0)
}

func (w *writer) field(f *Field, name string) {
	tag := f.Kind.String()
	attributes := []string{"storageId", number(f.StorageID), "name", name}
	switch f.Kind {
	case Simple:
		attributes = append(attributes, "encoding", f.Encoding, "indexed", flag(f.Indexed))
	case Enum:
		attributes = append(attributes, "indexed", flag(f.Indexed))
	case EnumArray:
		attributes = append(attributes, "dimensions", number(uint32(f.Dimensions)), "indexed", flag(f.Indexed))
	case Reference:
		allow := ""
		if f.AllowDeleted != (f.InverseDelete == Ignore) {
			allow = strconv.FormatBool(f.AllowDeleted)
		}
		attributes = append(attributes, "forwardDelete", flag(f.ForwardDelete), "inverseDelete", f.InverseDelete.String(), "allowDeleted", allow)
	}
	w.open(tag, attributes...)
	if f.Limited {
		w.open("ObjectTypes")
		for _, t := range f.Types {
			w.open(typeCode, "name", t)
			w.end(typeCode, true)
		}
		w.end("ObjectTypes", len(f.Types) == 0)
	}
	for _, name := range f.Identifiers {
		w.open("Identifier")
		w.write(escaper.Replace(name))
		w.end("Identifier", false)
	}
	for _, s := range f.Sub {
		w.field(s, "")
	}
	w.end(tag, !f.Limited && len(f.Identifiers)+len(f.Sub) == 0)
}

// element is an element of a document.
type element struct {
	tag        string
	attributes map[string]string
	children   []*element
	text       []byte
}

// Parse parses a document and returns its normalized model. Errors: base.ErrCorrupt when it is not
// XML, base.ErrInvalid, base.ErrUnsupported, base.ErrTooLarge.
func Parse(document []byte) (*Model, error) {
	if len(document) > MaxXML {
		return nil, fmt.Errorf("parse a schema of %d bytes: %w", len(document), base.ErrTooLarge)
	}
	root, err := parseElements(document)
	if err != nil {
		return nil, fmt.Errorf("parse a schema: %w", err)
	}
	m, err := model(root)
	if err == nil {
		err = m.Normalize()
	}
	if err != nil {
		return nil, fmt.Errorf("parse a schema: %w", err)
	}
	return m, nil
}

func parseElements(document []byte) (*element, error) {
	d := xml.NewDecoder(bytes.NewReader(document))
	top := &element{}
	stack := []*element{top}
	for n := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, base.ErrCorrupt)
		}
		switch x := token.(type) {
		case xml.StartElement:
			if n++; n > MaxElements {
				return nil, fmt.Errorf("more than %d elements: %w", MaxElements, base.ErrTooLarge)
			}
			e := &element{tag: x.Name.Local, attributes: map[string]string{}}
			for _, a := range x.Attr {
				e.attributes[a.Name.Local] = a.Value
			}
			last := stack[len(stack)-1]
			last.children = append(last.children, e)
			if stack = append(stack, e); len(stack) > maxDepth {
				return nil, fmt.Errorf("elements are nested too deep: %w", base.ErrInvalid)
			}
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			e := stack[len(stack)-1]
			e.text = append(e.text, bytes.TrimSpace(x)...)
		}
	}
	if len(top.children) != 1 {
		return nil, fmt.Errorf("there are %d documents: %w", len(top.children), base.ErrCorrupt)
	}
	return top.children[0], nil
}

func model(root *element) (*Model, error) {
	if root.tag != schemaCode {
		return nil, unexpected(root)
	}
	if v, ok := root.attributes["formatVersion"]; ok && v != "0" {
		return nil, fmt.Errorf("format version is %.40q: %w", v, base.ErrUnsupported)
	}
	m := &Model{}
	r := reader{}
	for _, e := range root.children {
		if e.tag != typeCode {
			return nil, unexpected(e)
		}
		t := &ObjectType{Name: e.attributes["name"], StorageID: r.number(e, "storageId")}
		for _, c := range e.children {
			if c.tag == indexCode {
				x := &CompositeIndex{Name: c.attributes["name"], StorageID: r.number(c, "storageId")}
				for _, f := range c.children {
					x.Fields = append(x.Fields, f.attributes["name"])
				}
				t.Indexes = append(t.Indexes, x)
				continue
			}
			t.Fields = append(t.Fields, r.field(c))
		}
		m.Types = append(m.Types, t)
	}
	return m, r.err
}

func unexpected(e *element) error {
	return fmt.Errorf("element %.40q is not expected here: %w", e.tag, base.ErrInvalid)
}

// reader converts elements to fields and keeps the first error.
type reader struct{ err error }

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) number(e *element, name string) uint32 {
	s, ok := e.attributes[name]
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 {
		r.fail(fmt.Errorf("attribute %s of %s is %.40q: %w", name, e.tag, s, base.ErrInvalid))
	}
	return uint32(n)
}

func (r *reader) flag(e *element, name string, otherwise bool) bool {
	s, ok := e.attributes[name]
	if !ok {
		return otherwise
	}
	if s != "true" && s != "false" && s != "1" && s != "0" {
		r.fail(fmt.Errorf("attribute %s of %s is %.40q: %w", name, e.tag, s, base.ErrInvalid))
	}
	return s == "true" || s == "1"
}

func (r *reader) field(e *element) *Field {
	kind := slices.Index(kindTags[:], e.tag)
	if kind < 0 {
		r.fail(unexpected(e))
		return &Field{}
	}
	f := &Field{Kind: Kind(kind), Name: e.attributes["name"], StorageID: r.number(e, "storageId")}
	f.Indexed = f.Kind.IsValue() && r.flag(e, "indexed", false)
	switch f.Kind {
	case Simple:
		f.Encoding = e.attributes["encoding"]
	case EnumArray:
		f.Dimensions = int(r.number(e, "dimensions"))
	case Reference:
		if s, ok := e.attributes["inverseDelete"]; ok {
			var err error
			if f.InverseDelete, err = ParseDeleteAction(s); err != nil {
				r.fail(err)
			}
		}
		f.ForwardDelete = r.flag(e, "forwardDelete", false)
		f.AllowDeleted = r.flag(e, "allowDeleted", f.InverseDelete == Ignore)
	}
	for _, c := range e.children {
		switch {
		case c.tag == "Identifier" && (f.Kind == Enum || f.Kind == EnumArray):
			f.Identifiers = append(f.Identifiers, string(c.text))
		case c.tag == "ObjectTypes" && f.Kind == Reference:
			f.Limited = true
			for _, t := range c.children {
				f.Types = append(f.Types, t.attributes["name"])
			}
		case f.Kind.subNames() != nil:
			f.Sub = append(f.Sub, r.field(c))
		default:
			r.fail(unexpected(c))
		}
	}
	return f
}
