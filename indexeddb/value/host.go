package value

import (
	"bytes"
	"unicode/utf8"
)

// shapes maps tags to the classes of geometry, and to how many numbers each has.
var shapes = map[byte]struct {
	name string
	n    int
}{
	'Q': {"DOMPoint", 4}, 'W': {"DOMPointReadOnly", 4}, 'E': {"DOMRect", 4}, 'R': {"DOMRectReadOnly", 4}, 'T': {"DOMQuad", 16},
	'Y': {"DOMMatrix", 16}, 'U': {"DOMMatrixReadOnly", 16}, 'I': {"DOMMatrix", 6}, 'O': {"DOMMatrixReadOnly", 6},
}

// host reads a host object. The format has no length for it, so nothing after an unknown one can be
// read.
func (d *decoder) host() (v Value) {
	id := d.add(nil)
	tag := d.tag()
	switch tag {
	case 'i', 'e':
		v = &Blob{Index: d.index(), File: tag == 'e'}
	case 'L':
		v = d.fileList()
	case 'n', 'N':
		v = &Handle{Name: d.utf8(), Index: d.index(), Directory: tag == 'N'}
	case '#':
		v = d.imageData()
	case 'x':
		v = &Error{Name: d.utf8(), Message: d.utf8(), Stack: d.utf8(), DOM: true}
	default:
		shape, ok := shapes[tag]
		if !ok {
			d.unsupported("an unknown object of the browser with the tag %q", tag)
			return nil
		}
		s := &Shape{Kind: shape.name}
		for range shape.n {
			s.Numbers = append(s.Numbers, d.double())
		}
		v = s
	}
	d.seen[id] = v
	return v
}

func (d *decoder) index() int { return int(d.uint32() & 0x7fffffff) }

// utf8 reads a string in Blink's form: a length and UTF-8.
func (d *decoder) utf8() string {
	b := d.bytes(uint64(d.uint32()))
	if !utf8.Valid(b) {
		d.corrupt("a string that is not UTF-8")
	}
	return string(b)
}

func (d *decoder) fileList() Value {
	n := d.uint32()
	if uint64(n) > uint64(len(d.b)-d.at) {
		d.corrupt("%d files of which not all are there", n)
		return nil
	}
	list := &FileList{}
	for range n {
		list.Indexes = append(list.Indexes, d.index())
	}
	return list
}

// Each setting of a picture has one number. Tags go up to lastSetting; settingsEnd ends the list.
const settingsEnd, lastSetting = 0, 6

func (d *decoder) imageData() Value {
	image := &ImageData{}
	for d.err == nil {
		tag := d.uint32()
		if tag == settingsEnd {
			break
		}
		if tag > lastSetting {
			d.unsupported("an unknown setting of a picture")
		}
		image.Settings = append(image.Settings, [2]uint32{tag, d.uint32()})
	}
	image.Width, image.Height = d.uint32(), d.uint32()
	image.Bytes = bytes.Clone(d.bytes(d.uint64()))
	return image
}
