package seal

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

// RecoveryWords is the number of recovery words.
const RecoveryWords = 24

// The list of English words of BIP-39, 2048 in order, as
// https://github.com/bitcoin/bips/blob/master/bip-0039/english.txt has it (CRC-32 c1dbd296).
//
//go:embed english.txt
var englishText string

var english = strings.Fields(englishText)

const wordBits = 11

// NewRecoveryWords draws a master key that is written as words; nil means the system's source.
func NewRecoveryWords(random io.Reader) MasterKey {
	return MasterKey{key: drawKey(random), words: true}
}

// RecoveryWords returns the key as 24 words separated by blanks, by BIP-39: the key and the first 8
// bits of its SHA-256, 11 bits a word. Errors: base.ErrInvalid for a key of another kind.
func (m MasterKey) RecoveryWords() (secret.Bytes, error) {
	if m.IsZero() || !m.words {
		return secret.Bytes{}, fmt.Errorf("write recovery words: there is no key, or it is another kind: %w", base.ErrInvalid)
	}
	sum := sha256.Sum256(m.key.Expose())
	n := new(big.Int).SetBytes(append(bytes.Clone(m.key.Expose()), sum[0]))
	words := make([]string, RecoveryWords)
	for i := range words {
		rest := new(big.Int)
		n.DivMod(n, big.NewInt(1<<wordBits), rest)
		words[RecoveryWords-1-i] = english[rest.Int64()]
	}
	return secret.FromString(strings.Join(words, " ")), nil
}

// ParseRecoveryWords returns the key of the given words. They may be separated by any white space,
// and have capital letters. Errors, which never show a word: base.ErrInvalid.
func ParseRecoveryWords(text []byte) (MasterKey, error) {
	words := strings.Fields(strings.ToLower(string(text)))
	if len(words) != RecoveryWords {
		return MasterKey{}, fmt.Errorf("read recovery words: %d words, want %d: %w", len(words), RecoveryWords, base.ErrInvalid)
	}
	n := new(big.Int)
	for i, w := range words {
		at, ok := slices.BinarySearch(english, w)
		if !ok {
			return MasterKey{}, fmt.Errorf("read recovery words: word %d is not one of the list: %w", i+1, base.ErrInvalid)
		}
		n.Or(n.Lsh(n, wordBits), big.NewInt(int64(at)))
	}
	b := n.FillBytes(make([]byte, keyBytes+1))
	defer clear(b)
	if sum := sha256.Sum256(b[:keyBytes]); sum[0] != b[keyBytes] {
		return MasterKey{}, fmt.Errorf("read recovery words: their checksum differs: is one wrong, or in the wrong place? %w", base.ErrInvalid)
	}
	return MasterKey{key: secret.New(b[:keyBytes]), words: true}, nil
}
