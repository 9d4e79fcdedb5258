package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/keys"
	"golang.org/x/term"
)

type keyInitFlags struct {
	Path string `arg:""`
	newPassphrase
	Protect bool `flag:"protect" usage:"encrypt the key with a passphrase, which the verb asks for"`
}

func (a *app) keyInit(ctx context.Context, f keyInitFlags) error {
	if f.Path == "" {
		return usagef("the name of the file is empty")
	}
	pass, err := f.getIf(ctx, a, f.Protect)
	if err != nil {
		return err
	}
	path := a.path(f.Path)
	if err := keys.CreateFile(path, pass); err != nil {
		return hintFor(err, fs.ErrExist, "an existing key is never overwritten: name another file, or use that key")
	}
	return a.printKey(path, "made", pass)
}

type keyShowFlags struct {
	Path           []string `arg:"..."`
	PassphraseFile string   `flag:"passphrase-file" usage:"file with the passphrase of the key file, one line (or set LEDGER_PASSPHRASE)"`
}

func (a *app) keyShow(ctx context.Context, f keyShowFlags) error {
	if len(f.Path) == 0 {
		return a.keyPair(ctx)
	}
	path := a.path(f.Path[0])
	pass, err := a.keyFilePassphrase(ctx, f.PassphraseFile, path)
	if err != nil {
		return err
	}
	return a.printKey(path, "", pass)
}

func (a *app) printKey(path, done string, pass []byte) error {
	id, err := keys.FileID(path, true, pass)
	if err != nil {
		return hintFor(fmt.Errorf("read key: %w", err), ledger.ErrCorrupt,
			"the key file is damaged, or is not a key file: name a file of ledgerd key init, "+
				"or your copy of it")
	}
	a.outcome(false, done, object{"path", path, "id", id})
	return nil
}

// shortID is the number of characters of a device's id in texts.
const shortID = 8

// printKeyring prints the keyring of a cloud. more has additional members for --json.
func (a *app) printKeyring(k keys.Keyring, more ...any) {
	if !a.quiet || a.json {
		slots := objects(k.Slots, func(s keys.Slot) object { return object{"id", s.ID, "kind", s.Kind, "label?", s.Label, "own", s.Own} })
		a.block("", append(object{"bucket", k.BucketID, "changes", k.Changes, "dataKeys", k.DataKeys, "slots", slots}, more...))
	}
}

// passphraseFlag names a file with the passphrase that opens the cloud. Function verb calls open
// before a verb with this flag runs.
type passphraseFlag struct {
	PassphraseFile string `flag:"passphrase-file" usage:"file with the passphrase of the cloud or key file, one line (or set LEDGER_PASSPHRASE)"`
}

// keyFilePassphrase returns the passphrase of the key file at path, nil if that needs none.
func (a *app) keyFilePassphrase(ctx context.Context, file, path string) ([]byte, error) {
	if !keys.NeedsPassphrase(path) {
		return nil, nil
	}
	pass, err := a.passphrase(file)
	if err == nil && len(pass) == 0 && a.asks() {
		pass, err = a.askSecret(ctx, "passphrase of "+path)
	}
	return pass, err
}

// open sets a.pass to the passphrase of the repository's cloud or key file. The passphrase is
// from the file, the environment, or the terminal.
func (f *passphraseFlag) open(ctx context.Context, a *app) error {
	pass, err := a.passphrase(f.PassphraseFile)
	if err != nil || len(pass) > 0 || a.process.served != nil || !a.asks() {
		a.pass = pass
		return err
	}
	info, err := a.cloud(ctx)
	if errors.Is(err, ledger.ErrNoCloud) {
		return nil // the verb reports it if it needs the cloud
	}
	if err == nil && (info.Passphrase || info.KeyFile != "" && keys.NeedsPassphrase(info.KeyFile)) {
		a.pass, err = a.askSecret(ctx, "passphrase of the cloud")
	}
	return err
}

// newPassphrase names a file with a new passphrase.
type newPassphrase struct {
	NewPassphraseFile string `flag:"new-passphrase-file" usage:"file with the new passphrase, one line (default: ask)"`
}

// strongPassphrase is the least number of characters of a passphrase that causes no warning.
const strongPassphrase = 12

// cautionWeak warns of a short new passphrase.
func (a *app) cautionWeak(pass []byte) {
	if n := utf8.RuneCount(pass); n > 0 && n < strongPassphrase {
		a.printWarning(fmt.Sprintf("the passphrase has only %s: anybody who can read the bucket may guess it", countText(n, "characters")), "use four or more random words, or a key file: key init")
	}
}

// get returns the passphrase of the file. Without a file it asks the user for the passphrase twice.
func (p *newPassphrase) get(ctx context.Context, a *app) (pass []byte, err error) {
	defer func() {
		if err == nil {
			a.cautionWeak(pass)
		}
	}()
	if p.NewPassphraseFile != "" {
		return a.passphrase(p.NewPassphraseFile)
	}
	if !a.asks() {
		return nil, usagef("there is no terminal to ask for the new passphrase: name a file with --new-passphrase-file")
	}
	first, err := a.askSecret(ctx, "new passphrase")
	if err != nil {
		return nil, err
	}
	again, err := a.askSecret(ctx, "new passphrase again")
	if err == nil && string(first) != string(again) {
		err = classedf(ledger.ErrInvalid, "the two passphrases differ, so nothing was done")
	}
	return first, err
}

// getIf is get if a file is named or wanted is true; else it returns nil.
func (p *newPassphrase) getIf(ctx context.Context, a *app, wanted bool) ([]byte, error) {
	if !wanted && p.NewPassphraseFile == "" {
		return nil, nil
	}
	return p.get(ctx, a)
}

// askSecret asks for a line of the standard input. A terminal does not show the line. In a serve it
// returns an error, because the terminal of the other process would show the line.
func (a *app) askSecret(ctx context.Context, what string) ([]byte, error) {
	if a.process.served != nil {
		return nil, usagef("serve runs this verb and cannot ask for the %s: name a file with it", what)
	}
	fmt.Fprintf(a.process.Stderr, "ledgerd: %s: ", what)
	var line string
	var err error
	if stdin, ok := a.process.Stdin.(*os.File); ok && term.IsTerminal(int(stdin.Fd())) {
		secret, readErr := term.ReadPassword(int(stdin.Fd()))
		line, err = string(secret), readErr
		fmt.Fprintln(a.process.Stderr)
	} else {
		line, err = a.answer(ctx)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("read %s: %w", what, err)
	case line == "":
		return nil, classedf(ledger.ErrInvalid, "read %s: nothing was entered", what)
	}
	return []byte(line), nil
}

// keyPair prints the key file of the cloud, and how another device joins.
func (a *app) keyPair(ctx context.Context) error {
	info, err := a.cloud(ctx)
	if err != nil {
		return err
	}
	if a.block("", cloudObject(info)); a.json {
		return nil
	}
	words := []string{"clone", info.URL, "--bucket-id", info.BucketID}
	switch {
	case info.Plaintext:
		words = append(words, "--plaintext")
	case info.Passphrase:
		words = append(words, "--passphrase")
	default:
		words = append(words, "--key-file", "COPY-OF-"+filepath.Base(info.KeyFile))
	}
	a.printf("\nOn another device, with its own --dir:\n\n  %s %s\n", a.process.Program, shellWords(words))
	return nil
}

func (a *app) keyList(ctx context.Context, repo *ledger.Repository, _ passphraseFlag) error {
	info, err := keys.Read(ctx, repo)
	if err != nil {
		return err
	}
	devices, bad := admin.Devices(ctx, repo)
	a.printKeyring(info, "devices?", objects(devices, func(d admin.DeviceInfo) object {
		return object{"id", d.ID, "name?", d.Name, "last", d.Last, "own", d.Own}
	}))
	return bad
}

type keyAddFlags struct {
	What []string `arg:"..."`
	passphraseFlag
	newPassphrase
	Label string `flag:"label" usage:"name in lists"`
}

// keyKinds are the first arguments of key add.
var keyKinds = []string{"file", "passphrase", "words"}

func (a *app) keyAdd(ctx context.Context, f keyAddFlags) error {
	c, err := a.keyAddition(ctx, f)
	if err != nil {
		return err
	}
	return a.change(ctx, func(repo *ledger.Repository) error {
		info, err := keys.Change(ctx, repo, &c)
		if err != nil {
			return err
		}
		if a.json || c.AddWords == "" {
			a.printKeyring(info, "words!?", c.AddWords)
			return nil
		}
		for line := range slices.Chunk(strings.Fields(c.AddWords), 6) {
			a.printf("%s\n", strings.Join(line, " "))
		}
		a.tell("the words are stored nowhere: write them down; key recover opens the cloud with them")
		return nil
	})
}

// keyAddition returns the change that adds a slot.
func (a *app) keyAddition(ctx context.Context, f keyAddFlags) (c keys.ChangeOptions, err error) {
	c.Label = f.Label
	switch what, alone := f.What[0], len(f.What) == 1; {
	case what == "file" && !alone:
		c.AddKeyFile = a.path(f.What[1])
		if keys.NeedsPassphrase(c.AddKeyFile) {
			c.KeyFilePassphrase, err = f.get(ctx, a)
		}
	case what == "passphrase" && alone:
		c.AddPassphrase, err = f.get(ctx, a)
	case what == "words" && alone:
		c.AddWords, err = keys.NewRecoveryWords()
	default:
		err = usagef("want file PATH, passphrase, or words")
	}
	return c, err
}

// keyRotate makes a new data key, removes the named slots, and explains the effect.
func (a *app) keyRotate(ctx context.Context, repo *ledger.Repository, f keyRotateFlags) error {
	c := keys.ChangeOptions{NewDataKey: true, Without: f.Without}
	info, err := keys.Change(ctx, repo, &c)
	if err != nil {
		return hintFor(err, ledger.ErrNotFound, "%s lists the slots", a.command("key", "ls"))
	}
	a.printKeyring(info)
	a.tell("new data has a new key; existing data is not uploaded again. Other devices use the new key within an hour, before they write")
	if len(c.Without) > 0 {
		a.tell("a device with only a removed slot can still read its local data, and older objects if the bucket serves them. " +
			"It can tell which page is written when. Revoke its credentials for the bucket. If it must not read even that, use a new bucket: cloud set")
	}
	return nil
}

// keyRotateFlags are the flags of key rotate and of key rm, which names slots.
type keyRotateFlags struct {
	Without []string `arg:"..."`
	passphraseFlag
}

type keyRecoverFlags struct {
	URL  bucketURL `arg:""`
	Path string    `arg:""`
	newPassphrase
	credentialsFlag
	WordsFile string `flag:"words-file" usage:"file with the words (default: ask)"`
	Label     string `flag:"label" usage:"name of the key file in lists"`
	BucketID  string `flag:"bucket-id" usage:"id that the bucket must have"`
	Protect   bool   `flag:"protect" usage:"encrypt the key in the file with a passphrase, which the verb asks for"`
}

func (a *app) keyRecover(ctx context.Context, f keyRecoverFlags) error {
	words, err := a.recoveryWords(ctx, f.WordsFile)
	if err != nil {
		return err
	}
	c := ledger.Cloud{URL: f.URL.url, KeyFile: a.path(f.Path), CredentialsFile: a.path(f.Credentials),
		BucketID: f.BucketID}
	if c.KeyFilePassphrase, err = f.getIf(ctx, a, f.Protect); err != nil {
		return err
	}
	info, err := keys.Recover(ctx, &c, words, f.Label, &ledger.Options{Buckets: a.process.Buckets})
	if err != nil {
		err = hintFor(err, ledger.ErrWrongKey,
			"the words are for another cloud: give those that were printed for this one")
		return hintFor(err, ledger.ErrShutOut,
			"these words were removed: use other words, or a key file or passphrase that opens the cloud")
	}
	a.printKeyring(info)
	a.tell("next: %s clone %s --key-file %s, or cloud set in a repository", a.process.Program, shellQuote(f.URL.text),
		shellQuote(f.Path))
	return nil
}

// recoveryWords returns the words in a file. Without a file it asks the user for them.
func (a *app) recoveryWords(ctx context.Context, file string) (string, error) {
	if file == "" {
		if !a.asks() {
			return "", usagef("there is no terminal to ask for the words: name a file with --words-file")
		}
		words, err := a.askSecret(ctx, "the 24 recovery words")
		return string(words), err
	}
	return a.secretFile("recovery words", "file of recovery words", file)
}
