package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

func (a *app) init(ctx context.Context, args []string) error {
	created, err := a.createRepository(ctx)
	if err != nil {
		return err
	}
	text := choose(created, "created a repository in %s\n", "there is a repository in %s already\n")
	a.result(object{"dir", a.dir, "created", created}, text, quoted(a.dir))
	return nil
}

// createRepository creates the repository unless it exists.
func (a *app) createRepository(ctx context.Context) (created bool, err error) {
	if has, err := a.hasRepository(); has || err != nil {
		return false, err
	}
	repo, err := a.open(ctx, ledger.Options{})
	if err != nil {
		return false, err
	}
	return true, repo.Close()
}

// createForImport is createRepository for imports, and reports a new repository to the user.
func (a *app) createForImport(ctx context.Context) (created bool, err error) {
	if created, err = a.createRepository(ctx); created {
		a.tell("created a repository in %s", quoted(a.dir))
	}
	return created, err
}

// hasRepository reports whether the directory holds a repository. An absent or empty directory
// holds none, nor does one in which a process died before its repository was complete. Other files
// are an error, since they belong to something else.
func (a *app) hasRepository() (bool, error) {
	if a.process.served != nil || a.dir == "" { // open reports a missing directory
		return a.process.served != nil, nil
	}
	entries, err := os.ReadDir(a.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for a repository: %w", err)
	}
	if holdsRepository(a.dir, entries) {
		return true, nil
	}
	if err := a.inAnother(); err != nil {
		return false, err
	}
	for _, e := range entries {
		if !slices.Contains([]string{"1", "lock", "lock.pid"}, e.Name()) {
			return false, withHint(fmt.Errorf("create a repository in %s: it has other files, such as %s: %w", quoted(a.dir), quoted(e.Name()), filetree.ErrNotEmpty),
				"name a directory that is absent or empty with --dir or LEDGER_DIR")
		}
	}
	return false, nil
}

// holdsRepository reports whether a directory with these entries is a repository.
func holdsRepository(dir string, entries []fs.DirEntry) bool {
	for _, e := range entries { // each version of the format has its directory
		_, err := os.Lstat(filepath.Join(dir, e.Name(), "repository"))
		if _, notNumber := strconv.ParseUint(e.Name(), 10, 64); err == nil && notNumber == nil {
			return true
		}
	}
	return false
}

// inAnother returns an error if the directory lies inside another repository, which owns its files.
func (a *app) inAnother() error {
	at, err := absolute(a.dir)
	if err != nil {
		return fmt.Errorf("look for a repository: %w", err)
	}
	for parent := filepath.Dir(at); parent != at; at, parent = parent, filepath.Dir(parent) {
		entries, err := os.ReadDir(parent)
		if err == nil && holdsRepository(parent, entries) { // an unreadable directory is not this user's
			return withHint(classedf(ledger.ErrConflict, "create a repository in %s: it lies in the repository %s", quoted(a.dir), quoted(parent)), "name a directory outside it with --dir or LEDGER_DIR")
		}
	}
	return nil
}
