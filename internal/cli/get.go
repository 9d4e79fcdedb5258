package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

// maxRangeJSON bounds, in bytes, a range of a value that get --json holds in memory.
const maxRangeJSON = 64 << 20

type getFlags struct {
	pageArg
	Key    oneKey `arg:""`
	At     string `flag:"at" usage:"revision to read (default HEAD)"`
	Offset int64  `flag:"offset" usage:"first byte to print"`
	Length int64  `flag:"length" usage:"number of bytes to print (default: to the end)"`
	Output string `flag:"output,o" usage:"write the value to this file"`
}

func (a *app) get(ctx context.Context, f getFlags) error {
	switch {
	case f.Length < -1:
		return usagef("--length is %d, want 0 or more", f.Length)
	case a.json && f.Output != "":
		return usagef("--json and --output exclude each other")
	}
	return a.pageAt(ctx, f.Page, fetches, f.At, func(page *ledger.Page, snap *ledger.Snapshot) error {
		entry, err := snap.Stat(ctx, f.Key)
		if err != nil {
			return a.noKey(page, f.Key, f.At, err)
		}
		if err := a.getEntry(ctx, entry, f); err != nil {
			return fmt.Errorf("get %s: %w", a.shortKey(f.Key), err)
		}
		return nil
	})
}

// noKey adds the key to an error. For an absent key, a hint names the command that lists keys.
func (a *app) noKey(page *ledger.Page, key []byte, at string, err error) error {
	if !errors.Is(err, ledger.ErrNotFound) {
		return fmt.Errorf("read key %s: %w", a.shortKey(key), err)
	}
	where, words := "", []string{"ls", pageText(page)}
	if at != "" {
		where, words = " at "+quoted(at), append(words, "--at", at)
	}
	hint := a.command(words...)
	if raw, err := strconv.Unquote(string(key)); err == nil && key[0] == '"' {
		hint = fmt.Sprintf("give a key that ls prints in quotes as hexadecimal digits: --hex %x", raw)
	}
	return withHint(classedf(ledger.ErrNotFound, "page %s has no key %s%s", pageText(page), a.shortKey(key), where), "%s", hint)
}

func (a *app) getEntry(ctx context.Context, entry ledger.Entry, f getFlags) error {
	if f.Offset > entry.Size {
		return classedf(ledger.ErrInvalid, "offset %d is beyond the end of the value, which has %s", f.Offset, countText(entry.Size, "byte"))
	}
	length := entry.Size - f.Offset
	length = choose(f.Length >= 0, min(length, f.Length), length)
	if a.json {
		return a.getJSON(ctx, entry, f.Offset, length)
	}
	if f.Output == "" {
		return copyRange(ctx, a.out, entry, f.Offset, length)
	}
	return writeFile(a.path(f.Output), func(w io.Writer) error { return copyRange(ctx, w, entry, f.Offset, length) })
}

// getJSON prints the entry with its value. A whole value is streamed.
func (a *app) getJSON(ctx context.Context, entry ledger.Entry, offset, length int64) error {
	a.printf(`{"key":%s,"size":%d,"priority":%q,"value":`, filetree.AppendJSONBytes(nil, entry.Key), entry.Size, entry.Priority)
	if length == entry.Size {
		if err := filetree.WriteJSONValue(ctx, a.out.Writer, entry); err != nil {
			return err
		}
	} else {
		if length > maxRangeJSON {
			return classedf(ledger.ErrTooLarge, "range of %s is too long for --json, at most %s", sizeText(length), sizeText(maxRangeJSON))
		}
		var b bytes.Buffer
		if err := copyRange(ctx, &b, entry, offset, length); err != nil {
			return err
		}
		a.out.Write(filetree.AppendJSONBytes(nil, b.Bytes()))
	}
	_, err := a.out.WriteString("}\n")
	return err
}

// copyRange writes length bytes of the value from offset to w.
func copyRange(ctx context.Context, w io.Writer, entry ledger.Entry, offset, length int64) error {
	value, err := entry.Open(ctx)
	if err != nil {
		return err
	}
	defer value.Close() // opened for reading: an error loses nothing
	if length == entry.Size {
		_, err = value.WriteTo(w)
		return err
	}
	_, err = io.Copy(w, io.NewSectionReader(value, offset, length))
	return err
}

// writeFile atomically replaces the file at path by the output of fn. A device or pipe is written
// directly.
func writeFile(path string, fn func(io.Writer) error) (err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(fn(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(fn(f), keepMode(f, path), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// keepMode gives f the mode of the file that it replaces, or 0644 for a new file.
func keepMode(f *os.File, path string) error {
	mode := os.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	return f.Chmod(mode)
}
