package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

var fuzzPage = [16]byte{5}

func fuzzBatch(number uint64, start uint64, ends []End, payloads ...string) []byte {
	b := NewBatch()
	for _, p := range payloads {
		b.Add(3, []byte(p))
	}
	return bytes.Clone(b.encode(fuzzPage, &BatchInfo{Number: number, Segment: 1, Start: start}, ends))
}

// move gives an encoded batch the checksums of another place.
func move(b []byte, page [16]byte, segment uint32, start uint64) {
	s := seed(page, segment, start)
	binary.BigEndian.PutUint32(b[24:], crc32.Update(s, castagnoli, b[:24]))
	body := b[:len(b)-crcBytes]
	binary.BigEndian.PutUint32(b[len(body):], crc32.Update(s, castagnoli, body))
}

// FuzzDecodeBatch gives arbitrary bytes right checksums and decodes them: what is accepted must be
// canonical.
func FuzzDecodeBatch(f *testing.F) {
	f.Add(fuzzBatch(1, 32, nil))
	f.Add(fuzzBatch(7, 32, []End{{1, 32}, {4, 9999}}, "a", "", "some longer payload"))
	f.Add(fuzzBatch(8, 32, []End{{2, 99}, {4, retiredBit | 6}, {9, 32}, {noSegment, 5}}))
	f.Add([]byte("LBT\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		if len(b) >= minBatchBytes {
			move(b, fuzzPage, 1, 32)
		}
		var d batch
		if err := d.decode(b, fuzzPage, 1, 32); err != nil {
			if !errors.Is(err, base.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again := NewBatch()
		for _, r := range d.recs {
			again.Add(r.Kind, r.Payload)
			if !bytes.Equal(b[r.Place.Offset-32:][:r.Place.Length], r.Payload) {
				t.Fatalf("record at a wrong place %v", r.Place)
			}
		}
		info := BatchInfo{Number: d.info.Number, Segment: 1, Start: 32}
		info.retirement = d.info.retirement
		if got := again.encode(fuzzPage, &info, d.ends); !bytes.Equal(got, b) || !reflect.DeepEqual(info, d.info) {
			t.Fatalf("not canonical:\n%x\n%x", b, got)
		}
	})
}

// mendChecksums makes the checksums in a segment file right as far as its lengths make sense.
func mendChecksums(b []byte) {
	if len(b) < headerBytes {
		return
	}
	copy(b, encodeHeader(fuzzPage, 1))
	for at := uint64(headerBytes); at+minBatchBytes <= uint64(len(b)); {
		s := seed(fuzzPage, 1, at)
		binary.BigEndian.PutUint32(b[at+24:], crc32.Update(s, castagnoli, b[at:at+24]))
		f, ok := parseFrame(b[at:], s)
		if !ok || f.size() > uint64(len(b))-at {
			return
		}
		move(b[at:at+f.size()], fuzzPage, 1, at)
		at += f.size()
	}
}

// FuzzScanSegment opens arbitrary bytes as a segment. When a reader takes them, a writer does too
// and replays the same, also when it opens again; unless a list names an end in the middle of a
// batch, which only a forger of checksums writes, and which the writer may meet when it has moved
// the batch that hid it.
func FuzzScanSegment(f *testing.F) {
	header := encodeHeader(fuzzPage, 1)
	one := append(bytes.Clone(header), fuzzBatch(1, 32, []End{{1, 32}}, "one")...)
	two := append(bytes.Clone(one), fuzzBatch(3, uint64(len(one)), []End{{1, uint64(len(one))}}, "two", "x")...)
	f.Add(header, false)
	f.Add(one, true)
	f.Add(two, true)
	f.Add(append(bytes.Clone(two), 0, 0, 0), true)
	f.Add(two[:len(two)-1], false)
	f.Add(append(bytes.Clone(one), fuzzBatch(3, uint64(len(one)), []End{{1, 58}}, "two", "x")...), true)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		b = bytes.Clone(b)
		if mend {
			mendChecksums(b)
		}
		m := vfstest.NewMem()
		if err := m.MkdirAll("d"); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(m, "d/00000001.seg", b); err != nil {
			t.Fatal(err)
		}
		read, err := replayAll(m, true)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		for range 2 {
			written, err := replayAll(m, false)
			if errors.Is(err, base.ErrCorrupt) && strings.Contains(err.Error(), "where one ended at") {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(read, written); d != "" {
				t.Fatal(d)
			}
		}
	})
}

func replayAll(m *vfstest.Mem, readOnly bool) (out []string, err error) {
	o := Options{FS: m, Dir: "d", Page: fuzzPage, ReadOnly: readOnly}
	l, _, err := Open(context.Background(), o, nil, func(b BatchInfo, recs []Record) error {
		for _, r := range recs {
			out = append(out, string(append([]byte{byte(b.Number), r.Kind}, r.Payload...)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, errors.Join(l.Verify(context.Background(), nil), l.Close())
}

func FuzzDecodePosition(f *testing.F) {
	f.Add(Position{}.Encode())
	f.Add(Position{Number: 9, CRC: 8, Segment: 2, Start: 50, Ends: []End{{1, 32}, {2, 99}}}.Encode())
	f.Add(Position{Number: 9, CRC: 8, Segment: 2, Start: 50, Ends: []End{{2, 99}, {7, 32}}, gone: retirement{retired: ids{{1, 1}, {3, 6}}, cuts: cuts{7: 32, 2: 99}}}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		if len(b) >= crcBytes {
			binary.BigEndian.PutUint32(b[len(b)-crcBytes:], crc32.Checksum(b[:len(b)-crcBytes], castagnoli))
		}
		p, err := DecodePosition(b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if got := p.Encode(); !bytes.Equal(got, b) {
			t.Fatalf("not canonical:\n%x\n%x", b, got)
		}
	})
}

// FuzzReadHeader reads arbitrary bytes, with right checksums, as the header of a segment: what is
// accepted is canonical.
func FuzzReadHeader(f *testing.F) {
	f.Add(encodeHeader(fuzzPage, 9), uint32(9))
	f.Fuzz(func(t *testing.T, b []byte, id uint32) {
		b = bytes.Clone(b)
		if len(b) > headerBytes {
			binary.BigEndian.PutUint32(b[headerBytes-crcBytes:], crc32.Checksum(b[:headerBytes-crcBytes], castagnoli))
		}
		whole, err := readHeader(bytes.NewReader(b), fuzzPage, id)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if again := encodeHeader(fuzzPage, id); whole && !bytes.HasPrefix(b, again) {
			t.Fatalf("not canonical:\n%x\n%x", b, again)
		}
	})
}
