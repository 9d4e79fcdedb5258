package sealtest

import (
	"bytes"

	"github.com/ledgerd/ledger/cloudsync/seal"
)

// WarmUp makes the coders of package seal, which all bubbles share. They live as long as the
// program, and objects made in a bubble may not be used outside of it. TestMain calls WarmUp before
// any bubble.
func WarmUp() error {
	ring, err := seal.NewKeyring(seal.AES256GCM, nil)
	if err != nil {
		return err
	}
	s, l, plain := seal.NewSealer(ring, nil), seal.Label{Role: "warm-up"}, bytes.Repeat([]byte("a"), 200)
	sealed, _, err := s.Seal(l, plain, seal.Form{Parts: []seal.Part{{To: len(plain), Compress: true}}})
	if err == nil {
		_, _, err = s.Open(l, sealed, len(plain))
	}
	return err
}
