package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

// The author of an entry or epoch follows the content, inside the seal:
//
//	32  public key of the device
//	64  its signature (seal.Sealer.Sign) of "log entry" or "epoch"; the length of the page's
//	    directory (4); the directory; of an entry its epoch (16) and number (8); the content
const authorBytes = seal.SignatureBytes

// authored returns the message that the device signs.
func authored(what string, n Names, place, plain []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte(what), uint32(len(n.Dir)))
	return append(append(append(b, n.Dir...), place...), plain...)
}

// entryPlace returns the place of an entry, as signed.
func entryPlace(e epoch.ID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(e[:len(e):len(e)], number)
}

// sign appends the author to the plaintext for a place.
func sign(s *seal.Sealer, what string, n Names, place, plain []byte) []byte {
	signature := s.Sign(authored(what, n, place, plain))
	return append(plain, signature[:]...)
}

// verify cuts the author off opened plaintext, and proves that the device has signed it. The
// plaintext begins with a version.
func verify(s *seal.Sealer, what string, n Names, place, sealed []byte) (plain []byte, device seal.ID, err error) {
	at := len(sealed) - authorBytes
	if at < 1 {
		return nil, device, corrupt(what, fmt.Errorf("%d bytes without an author", len(sealed)))
	}
	if err := checkVersion(what, sealed[0]); err != nil {
		return nil, device, err
	}
	plain = sealed[:at:at]
	device, err = s.Keyring().Verify(authored(what, n, place, plain), [seal.SignatureBytes]byte(sealed[at:]))
	if err != nil {
		return nil, device, corrupt(what, err)
	}
	return plain, device, nil
}
