package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

// The author of an entry or epoch stands behind what he has written, inside the seal:
//
//	16  id of the device, zero for none
//	64  its signature (seal.Sealer.Sign) of "log entry" or "epoch", the length of the page's
//	    directory (4) and the directory; of an entry its epoch (16) and number (8); what stands
//	    before; and the id of the device
const authorBytes = 16 + seal.SignatureBytes

var errNotSigned = errors.New("it is not signed, and the keyring lists devices")

// authored returns what the device signs.
func authored(what string, n Names, place, plain []byte, device epoch.ID) []byte {
	b := binary.BigEndian.AppendUint32([]byte(what), uint32(len(n.Dir)))
	b = append(append(append(b, n.Dir...), place...), plain...)
	return append(b, device[:]...)
}

// entryPlace is where an entry stands.
func entryPlace(e epoch.ID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(e[:len(e):len(e)], number)
}

// sign appends the author to what is to be sealed at a place: the device that the Sealer signs for,
// or nobody.
func sign(s *seal.Sealer, what string, n Names, place, plain []byte) ([]byte, error) {
	device := s.SignsAs()
	if device == (seal.ID{}) {
		return append(plain, make([]byte, authorBytes)...), nil
	}
	signature, err := s.Sign(authored(what, n, place, plain, epoch.ID(device)))
	if err != nil {
		return nil, err
	}
	return append(append(plain, device[:]...), signature[:]...), nil
}

// verify takes the author off what was sealed with data key keyIndex, and proves that he is one who
// may write. Where the keyring lists no device, nobody need have signed. What was sealed begins
// with a version.
func verify(s *seal.Sealer, what string, n Names, place, sealed []byte, keyIndex uint32) (plain []byte, device epoch.ID, err error) {
	at := len(sealed) - authorBytes
	if at < 1 {
		return nil, device, corrupt(what, fmt.Errorf("%d bytes without an author", len(sealed)))
	}
	if err := checkVersion(what, sealed[0]); err != nil {
		return nil, device, err
	}
	plain, device = sealed[:at:at], epoch.ID(sealed[at:])
	signature := [seal.SignatureBytes]byte(sealed[at+len(device):])
	ring := s.Keyring()
	switch {
	case device == epoch.ID{} && signature == [seal.SignatureBytes]byte{} && !ring.HasDevices():
		return plain, device, nil
	case device == epoch.ID{}:
		return nil, device, corrupt(what, errNotSigned)
	}
	if err := ring.Verify(seal.ID(device), keyIndex, authored(what, n, place, plain, device), signature); err != nil {
		return nil, device, corrupt(what, err)
	}
	return plain, device, nil
}
