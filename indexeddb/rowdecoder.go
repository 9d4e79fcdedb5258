package indexeddb

// rowDecoder decodes a row key field by field, as in Chromium's LevelDB or as on a page. After an
// error its methods return zeros.
type rowDecoder struct {
	b     []byte
	page  bool
	short bool // a key on the page was shortened
	err   error
}

func (d *rowDecoder) fail(got string, args ...any) {
	if d.err == nil {
		where := "row key"
		if d.page {
			where = "row of a page"
		}
		d.err = malformed(where, got, args...)
	}
	d.b = nil
}

func (d *rowDecoder) uint() int64 {
	decode := DecodeVarInt
	if d.page {
		decode = decodeUint
	}
	n, rest, err := decode(d.b)
	if err != nil {
		d.fail("an id that is cut")
		return 0
	}
	d.b = rest
	return n
}

func (d *rowDecoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("it is cut")
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

// key returns the next key of a page, or the zero Key when it was shortened.
func (d *rowDecoder) key() Key {
	part, rest, short, err := CutPagePart(d.b)
	if err != nil {
		d.fail("a key that is cut")
		return Key{}
	}
	d.b, d.short = rest, d.short || short
	if short {
		return Key{}
	}
	k, _, err := DecodeSortable(part)
	if err != nil {
		d.fail("a key that is malformed")
	}
	return k
}

func (d *rowDecoder) name() string {
	if !d.page {
		text, rest, err := decodeStringWithLength(d.b)
		if err != nil {
			d.fail("a name that is cut")
			return ""
		}
		d.b = rest
		return text
	}
	k := d.key()
	switch {
	case k.IsZero():
		return ""
	case k.Type() != KeyString:
		d.fail("a name that is no string")
		return ""
	}
	return k.Text()
}

func (d *rowDecoder) global(r *Row) {
	switch t := d.byte(); {
	case d.err != nil:
	case t <= GlobalEarliestCompaction:
		r.Kind, r.Property = KindGlobal, t
	case t == typeScope && !d.page:
		r.Kind, r.Scope, d.b = KindScope, append([]byte{}, d.b...), nil
	case t == typeDatabaseFree:
		r.Kind, r.Database = KindDatabaseFree, d.uint()
	case t == typeDatabaseName:
		r.Kind, r.Origin, r.Name = KindDatabaseName, d.name(), d.name()
	default:
		d.fail("global metadata of type %d", t)
	}
}

// metadata decodes the bytes after the prefix. r has the ids of the prefix.
func (d *rowDecoder) metadata(r *Row) {
	if r.Database == 0 {
		d.global(r)
		return
	}
	switch t := d.byte(); {
	case d.err != nil:
	case t <= DatabaseBlobNumber:
		r.Kind, r.Property = KindDatabase, t
	case t == typeStore:
		r.Kind, r.Store, r.Property = KindStore, d.uint(), d.byte()
	case t == typeIndex:
		r.Kind, r.Store, r.Index, r.Property = KindIndex, d.uint(), d.uint(), d.byte()
	case t == typeStoreFree:
		r.Kind, r.Store = KindStoreFree, d.uint()
	case t == typeIndexFree:
		r.Kind, r.Store, r.Index = KindIndexFree, d.uint(), d.uint()
	case t == typeStoreName:
		r.Kind, r.Name = KindStoreName, d.name()
	case t == typeIndexName:
		r.Kind, r.Store, r.Name = KindIndexName, d.uint(), d.name()
	default:
		d.fail("metadata of type %d", t)
	}
	if r.Kind == KindStore && r.Property > StoreKeyGenerator || r.Kind == KindIndex && r.Property > IndexMultiEntry {
		d.fail("unknown property %d", r.Property)
	}
}
