package storage

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// cloudRow is the value of a row of bucket cloud: container, key index and spot as in a record of
// places, and a checksum.
func cloudRow(d *object.Digest, p *CloudPlace) []byte {
	var c coder
	p.codeContainer(&c)
	p.codeSpot(&c)
	return withSum(d[:], c.p)
}

func parseCloudRow(d *object.Digest, v []byte) (CloudPlace, error) {
	var p CloudPlace
	b, ok := cutSum(d[:], v)
	if !ok {
		return p, badRow(bucketCloud, d.String(), "bad checksum")
	}
	c := coder{p: b, reading: true}
	p.codeContainer(&c)
	p.codeSpot(&c)
	if c.bad || len(c.p) > 0 {
		return CloudPlace{}, badRow(bucketCloud, d.String(), "bad place")
	}
	return p, nil
}

// readCloudRow returns the place of the piece with a number, and whether it has one.
func readCloudRow(tx index.Tx, d *object.Digest, number uint64) (CloudPlace, bool, error) {
	v := tx.Bucket(bucketCloud).Get(appendNumber(nil, number))
	if v == nil {
		return CloudPlace{}, false, nil
	}
	p, err := parseCloudRow(d, v)
	return p, err == nil, err
}

// readCloudRowAt reads a row of bucket cloud by its key.
func readCloudRowAt(tx index.Tx, k, v []byte) (PlacedPiece, error) {
	d, err := keyDigest(tx, bucketCloud, k)
	if err != nil {
		return PlacedPiece{}, err
	}
	p, err := parseCloudRow(&d, v)
	return PlacedPiece{Digest: d, Place: p}, err
}

// String describes the place for people; the words may change.
func (p *CloudPlace) String() string {
	if p.Entry != 0 {
		return fmt.Sprintf("entry %d, piece %d, at %d, length %d, key %d", p.Entry, p.Block, p.At, p.Bytes, p.KeyIndex)
	}
	return fmt.Sprintf("pack %x, frame %d, offset %d, sealed length %d, at %d, length %d, key %d",
		p.Pack, p.Block, p.Offset, p.StoredBytes, p.At, p.Bytes, p.KeyIndex)
}

// aheadRow is the value of the row of a treeless commit that was received ahead (see
// ReceivedCommit).
var aheadRow = []byte{1}

// syncRow appends the printed form of a row of a sync family.
func syncRow(tx index.Tx, family string, k, v []byte, add func(string, ...string)) error {
	switch family {
	case bucketTreeless:
		switch {
		case len(v) == 0:
			add("", hex.EncodeToString(k))
		case bytes.Equal(v, aheadRow):
			add("ahead", hex.EncodeToString(k))
		default:
			return badRow(family, hex.EncodeToString(k), "bad value")
		}
	case bucketNewTags:
		t, err := parseNewTagRow(string(k), v)
		if err != nil {
			return err
		}
		value := "removed"
		if !t.Removed {
			value = t.Commit.String()
		}
		add(value, string(k))
	case bucketMetadata:
		value, err := parseMetadataRow(string(k), v)
		if err != nil {
			return err
		}
		add(hex.EncodeToString(value), string(k))
	case bucketCloud:
		p, err := readCloudRowAt(tx, k, v)
		if err != nil {
			return err
		}
		add(p.Place.String(), p.Digest.String())
	}
	return nil
}
