package cloudlink

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

// Cloud names a cloud and its key, as ledger.Cloud does.
type Cloud struct {
	URL               string
	KeyFile           string
	KeyFilePassphrase []byte
	SharedKeyFile     bool
	Passphrase        []byte
	Plaintext         bool
	BucketID          string
	CredentialsFile   string
}

// file returns the settings of o for the file `cloud`, with absolute paths.
func (o *Cloud) file() (*file, error) {
	ways := 0
	f := &file{url: o.URL, shared: o.SharedKeyFile, pin: strings.ToLower(o.BucketID)}
	if id, err := hex.DecodeString(f.pin); err != nil || len(id) != 0 && len(id) != seal.IDBytes {
		return nil, fmt.Errorf("name a cloud: bucket id %q is not %d hexadecimal digits: %w", o.BucketID, 2*seal.IDBytes, base.ErrInvalid)
	}
	if o.KeyFile != "" {
		ways, f.source = ways+1, keyInFile
	}
	if len(o.Passphrase) > 0 {
		ways, f.source = ways+1, keyPassphrase
	}
	if o.Plaintext {
		ways++
	}
	if ways != 1 {
		return nil, fmt.Errorf("name a cloud: want exactly one of a key file, a passphrase, and plaintext: %w", base.ErrInvalid)
	}
	var err error
	if f.url, err = absoluteURL(o.URL); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		from string
		to   *string
	}{{o.KeyFile, &f.keyFile}, {o.CredentialsFile, &f.credentials}} {
		if p.from == "" {
			continue
		}
		if *p.to, err = filepath.Abs(p.from); err != nil {
			return nil, fmt.Errorf("name a cloud: %w", err)
		}
	}
	return f, f.check()
}

// pass returns the passphrase of the cloud or of its key file.
func (o *Cloud) pass() secret.Bytes {
	if len(o.KeyFilePassphrase) > 0 {
		return secret.New(o.KeyFilePassphrase)
	}
	return secret.New(o.Passphrase)
}
