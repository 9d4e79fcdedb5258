package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// BlockSpan is a run of blocks of a pack: Count of them, at least one, from number First on.
type BlockSpan struct{ First, Count uint32 }

// PartialPack says which blocks of a pack who begins with a checkpoint is to read, since other
// blocks have nothing that is live. Spans ascend, with at least one block between them.
type PartialPack struct {
	ID    ID
	Spans []BlockSpan
}

// Has reports whether a block is to be read.
func (p *PartialPack) Has(block uint32) bool {
	for _, s := range p.Spans {
		if block >= s.First && block-s.First < s.Count {
			return true
		}
	}
	return false
}

// A list of partial packs is their number (uvarint), then for each:
//
//	16  id
//	    number of spans (uvarint, not 0); for each: how many blocks lie between it and the one
//	           before, or the pack's beginning (uvarint), and how many it has (uvarint, not 0)
func appendPartial(b []byte, packs []PartialPack) []byte {
	b = binary.AppendUvarint(b, uint64(len(packs)))
	for i := range packs {
		b = append(b, packs[i].ID[:]...)
		b = binary.AppendUvarint(b, uint64(len(packs[i].Spans)))
		end := uint32(0)
		for _, s := range packs[i].Spans {
			b = binary.AppendUvarint(b, uint64(s.First-end))
			b = binary.AppendUvarint(b, uint64(s.Count))
			end = s.First + s.Count
		}
	}
	return b
}

// partial reads a list of partial packs that is not empty.
func (d *decoder) partial() []PartialPack {
	packs := make([]PartialPack, d.count("partial packs", 1, 16+1+2))
	for i := range packs {
		packs[i].ID = d.id()
		spans := make([]BlockSpan, d.count("spans", 1, 2))
		end := uint64(0)
		for k := range spans {
			end += d.uvarint("blocks before a span", 0, MaxPackPieces)
			n := d.uvarint("blocks of a span", 1, MaxPackPieces)
			spans[k] = BlockSpan{uint32(end), uint32(n)}
			if end += n; end > MaxPackPieces {
				d.failf("a block %d of a pack", end-1)
			}
			if d.err != nil {
				return nil
			}
		}
		packs[i].Spans = spans
	}
	return packs
}

// checkPartial verifies partial packs, each of which must be an eager one of packs, which are
// sorted.
func checkPartial(partial []PartialPack, packs []PackRef) error {
	for i := range partial {
		p := &partial[i]
		if i > 0 && compareIDs(partial[i-1].ID, p.ID) >= 0 {
			return errors.New("partial packs are not sorted, or one is there twice")
		}
		at, ok := slices.BinarySearchFunc(packs, p.ID, func(q PackRef, id ID) int { return compareIDs(q.ID, id) })
		if !ok || !packs[at].Eager {
			return fmt.Errorf("pack %s is read in part, and is none of those that are read", p.ID)
		}
		if len(p.Spans) == 0 {
			return fmt.Errorf("nothing of pack %s is read", p.ID)
		}
		end := uint64(0)
		for k, s := range p.Spans {
			if s.Count == 0 || uint64(s.First) < end || k > 0 && uint64(s.First) == end {
				return fmt.Errorf("spans of pack %s overlap, or are one", p.ID)
			}
			if end = uint64(s.First) + uint64(s.Count); end > MaxPackPieces {
				return fmt.Errorf("block %d of pack %s", end-1, p.ID)
			}
		}
	}
	return nil
}

const packsWhere = "list of packs"

// EncodePacks returns the value of a metadata row that lists packs: a version byte, 1, and the list
// as in bodies. It sorts packs. It returns nil for none.
func EncodePacks(packs []PackRef) []byte {
	if len(packs) == 0 {
		return nil
	}
	sortPacks(packs)
	return appendPacks([]byte{formatVersion}, packs)
}

// ParsePacks reads what EncodePacks returned. Errors: *base.CorruptError, *base.FormatError.
func ParsePacks(b []byte) ([]PackRef, error) {
	if len(b) == 0 {
		return nil, nil
	}
	d := decode(packsWhere, b)
	packs := d.packs(1)
	if err := d.end(); err != nil {
		return nil, err
	}
	if err := checkPacks(packs); err != nil {
		return nil, corrupt(packsWhere, err)
	}
	return packs, nil
}
