package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

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
	case f.Output != "":
		if in, err := inside(a.path(f.Output), a.dir); err != nil || in {
			return cmp.Or(err, withHint(usagef("get to %s: it belongs to the repository %s itself", quoted(f.Output), quoted(a.dir)),
				"name a file outside it"))
		}
	}
	return a.pageAt(ctx, f.Page, fetches, f.At, func(page *ledger.Page, snap *ledger.Snapshot) error {
		entry, err := snap.Stat(ctx, f.Key)
		if err != nil {
			return a.noKey(ctx, page, f.Key, f.At, err)
		}
		if err := a.getEntry(ctx, entry, f); err != nil {
			return fmt.Errorf("get %s: %w", a.shortKey(f.Key), err)
		}
		return nil
	})
}

// noKey adds the key to an error. For an absent key, a hint names the command that lists keys, or
// the one that downloads the page.
func (a *app) noKey(ctx context.Context, page *ledger.Page, key []byte, at string, err error) error {
	if !errors.Is(err, ledger.ErrNotFound) {
		return fmt.Errorf("read key %s: %w", a.shortKey(key), err)
	}
	where, words := "", []string{"ls", pageText(page)}
	if at != "" {
		where, words = " at "+quoted(at), append(words, "--at", at)
	}
	hint := a.command(words...)
	if awaitsSync(ctx, page) {
		where, hint = ": the page has no commit yet", a.command("sync", pageText(page))
	}
	if raw, err := strconv.Unquote(string(key)); err == nil && key[0] == '"' {
		hint = fmt.Sprintf("give a key that ls prints in quotes as hexadecimal digits: --hex %x", raw)
	}
	return withHint(classedf(ledger.ErrNotFound, "page %s has no key %s%s", pageText(page), a.shortKey(key), where), "%s", hint)
}

func (a *app) getEntry(ctx context.Context, entry ledger.Entry, f getFlags) error {
	if f.Offset > entry.Size {
		return classedf(ledger.ErrInvalid, "offset %d is beyond the end of the value, which has %s", f.Offset, countText(entry.Size, "bytes"))
	}
	length := entry.Size - f.Offset
	length = choose(f.Length >= 0, min(length, f.Length), length)
	value, err := entry.Open(ctx)
	if err != nil {
		return err
	}
	defer value.Close() // opened for reading: an error loses nothing
	section := io.NewSectionReader(value, f.Offset, length)
	write := func(w io.Writer) error {
		if length == entry.Size {
			_, err := value.WriteTo(w)
			return err
		}
		_, err := io.Copy(w, section)
		return err
	}
	switch {
	case f.Output != "":
		return writeFile(ctx, a.path(f.Output), func(file *os.File) error { return write(file) })
	case !a.json:
		return write(a.out)
	}
	a.printf(`{"key":%s,"size":%d,"priority":%q,"value":`, filetree.AppendJSONBytes(nil, entry.Key), entry.Size, entry.Priority)
	err = filetree.WriteJSONValue(a.out.Writer, section)
	a.printf("}\n")
	return err
}

// writeFile atomically replaces the file at path, or that to which a link there leads, by the
// output of fn. A device or pipe is written directly.
func writeFile(ctx context.Context, path string, fn func(*os.File) error) (err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := openFile(ctx, path, os.O_WRONLY)
		if err != nil {
			return err
		}
		err = errors.Join(fn(f), f.Close())
		return choose(err != nil && ctx.Err() != nil, ctx.Err(), err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // the link stays
	}
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(fn(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// createBeside creates a file that will replace the one at path, and has its mode. A new file has
// the mode that the umask leaves.
func createBeside(path string) (*os.File, error) {
	name := filepath.Join(filepath.Dir(path), "."+rand.Text()+".tmp")
	mode := os.FileMode(0o666)
	old, statErr := os.Stat(path)
	if statErr == nil {
		mode = old.Mode().Perm()
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		e.Path = path
	}
	if err != nil || statErr != nil {
		return f, err
	}
	if err := f.Chmod(mode); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return f, nil
}
