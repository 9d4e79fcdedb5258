package format

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/seal"
)

// DevicePosition is what stands in devices/: that the device with the fingerprint has read up to
// entry Number.
type DevicePosition struct {
	Fingerprint ID
	Number      uint64
}

// The plaintext of a note of a device is the format version, 1, alone: its name says everything,
// and it is bound to its name.
const (
	deviceBytes = 1
	deviceWhere = "note of a device"
)

func (p *DevicePosition) check() error {
	if p.Fingerprint.IsZero() {
		return errors.New("fingerprint is zero")
	}
	if p.Number > MaxNumber {
		return fmt.Errorf("number %d is not 0 to 2^62", p.Number)
	}
	return nil
}

// SealDevice returns the object with the name that PageNames.Device gives. Errors: base.ErrInvalid,
// those of the source of randomness.
func SealDevice(s *seal.Sealer, n PageNames, d DevicePosition) ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, invalid(deviceWhere, err)
	}
	return sealSmall(s, n.DeviceLabel(d.Fingerprint, d.Number), []byte{formatVersion})
}

// OpenDevice proves that a device has written that it has read up to entry number. Errors, with the
// name of the object: *base.CorruptError, *base.FormatError.
func OpenDevice(s *seal.Sealer, n PageNames, fp ID, number uint64, stored []byte) error {
	return openSmall(s, n.DeviceLabel(fp, number), deviceWhere, stored, deviceBytes, func(d *decoder) error {
		p := DevicePosition{Fingerprint: fp, Number: number}
		if err := p.check(); err != nil {
			return corrupt(deviceWhere, err)
		}
		return d.end()
	})
}
