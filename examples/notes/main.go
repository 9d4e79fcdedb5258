// Command notes keeps notes with tags and attachments, on any number of devices.
//
//	notes DIR add TITLE [TAG...] < BODY     add a note, and print its id
//	notes DIR edit ID < BODY                change its body
//	notes DIR show ID                       print a note
//	notes DIR rm ID                         remove it
//	notes DIR ls [TAG]                      list notes, the newest first
//	notes DIR since DURATION                list the notes that were changed lately, as 24h
//	notes DIR attach ID FILE                keep a file with a note
//	notes DIR extract ID NAME               print an attachment
//	notes DIR sync dir:BUCKET KEYFILE       connect to a bucket, and sync with the other devices
//	notes DIR watch [TAG]                   list notes, again after each change, until it is
//	                                        stopped
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/records"
)

// Note is the stored record. When two devices change a note concurrently, its tags and attachments
// are merged, and the later body wins; the other one is in the history.
type Note struct {
	Title   string
	Body    string
	Tags    []string         `ledger:"set"`
	Files   map[string]int64 `ledger:"set"` // names and sizes of attachments
	Edits   int64            `ledger:"counter"`
	Changed time.Time        `ledger:"max"`
}

// app is a repository with one page of notes.
type app struct {
	repo  *ledger.Repository
	page  *ledger.Page
	notes *records.Collection[Note]
	out   io.Writer
	in    io.Reader
}

// collection is how notes are found: by time, and by tag and time.
var collection = &records.Options[Note]{Indexes: []records.Index[Note]{
	{Name: "changed", Keys: func(n *Note) [][]byte { return [][]byte{records.Key(n.Changed)} }},
	{Name: "tag", Keys: func(n *Note) (keys [][]byte) {
		for _, t := range n.Tags {
			keys = append(keys, records.Key(t, n.Changed))
		}
		return keys
	}},
}}

func open(ctx context.Context, dir string, in io.Reader, out io.Writer) (a *app, err error) {
	a = &app{in: in, out: out}
	rule, err := records.MergeRule("notes", collection)
	if err != nil {
		return nil, err
	}
	a.repo, err = ledger.Open(ctx, dir, &ledger.Options{
		MergeRules: func(string, ledger.PageID) []ledger.MergeRule { return []ledger.MergeRule{rule} },
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.page, err = a.repo.Page(ctx, "notes", "all"); err != nil {
		return nil, err
	}
	a.notes, err = records.Open(ctx, a.page, "notes", collection)
	return a, err
}

func (a *app) close() {
	if a.page != nil {
		a.page.Close()
	}
	a.repo.Close()
}

// change calls fn to change a note, and puts the note with the current time, in one transaction.
func (a *app) change(ctx context.Context, id string, fn func(n *Note, tx *ledger.Tx) error) error {
	_, err := a.page.Update(ctx, func(tx *ledger.Tx) error {
		notes := a.notes.In(tx)
		n, err := notes.Get(ctx, id)
		if err == nil {
			err = fn(n, tx)
		}
		if err != nil {
			return err
		}
		n.Edits++
		n.Changed = time.Now()
		return notes.Put(ctx, id, n)
	})
	return err
}

func (a *app) add(ctx context.Context, title string, tags []string) error {
	body, err := io.ReadAll(a.in)
	if err != nil {
		return err
	}
	id := strings.ToLower(rand.Text()[:8])
	fmt.Fprintln(a.out, id)
	return a.notes.Put(ctx, id, &Note{Title: title, Body: string(body), Tags: tags, Edits: 1, Changed: time.Now()})
}

func (a *app) edit(ctx context.Context, id string) error {
	body, err := io.ReadAll(a.in)
	if err != nil {
		return err
	}
	return a.change(ctx, id, func(n *Note, _ *ledger.Tx) error {
		n.Body = string(body)
		return nil
	})
}

func (a *app) show(ctx context.Context, id string) error {
	n, err := a.notes.Get(ctx, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s\ntags: %s\nfiles: %v\nedits: %d\n\n%s", n.Title, strings.Join(n.Tags, " "), n.Files, n.Edits, n.Body)
	return a.lost(ctx, id, n)
}

// lost prints the bodies that a merge has dropped since the note was written.
func (a *app) lost(ctx context.Context, id string, n *Note) error {
	for step, err := range a.page.Why(ctx, ledger.CommitID{}, a.notes.PageKey(id)) {
		if err != nil {
			return err
		}
		if step.Rule != records.Rule {
			continue // a write, or a merge that has kept all changes
		}
		for _, lost := range step.Lost {
			s, err := a.page.At(ctx, lost.Parent.ID)
			if err != nil {
				return err
			}
			other, err := a.notes.At(s).Get(ctx, id)
			if err == nil && other.Body != n.Body {
				fmt.Fprintf(a.out, "\nanother device wrote:\n%s", other.Body)
			}
			if err := errors.Join(err, s.Close()); err != nil && !errors.Is(err, ledger.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// remove removes a note with its attachments.
func (a *app) remove(ctx context.Context, id string) error {
	_, err := a.page.Update(ctx, func(tx *ledger.Tx) error {
		if err := a.notes.In(tx).Delete(ctx, id); err != nil {
			return err
		}
		return tx.DeleteRange(ctx, file(id, ""), []byte("file/"+id+"0")) // 0 follows the slash
	})
	return err
}

func (a *app) list(notes []records.Record[Note]) {
	for _, r := range notes {
		fmt.Fprintf(a.out, "%s  %s  %s\n", r.ID, r.Value.Title, strings.Join(r.Value.Tags, " "))
	}
}

// byTag selects the notes with a tag, or all without one, the newest first.
func byTag(tag []string) records.Query {
	if len(tag) == 0 {
		return records.Query{Index: "changed", Reverse: true}
	}
	return records.Query{Index: "tag", Prefix: records.Key(tag[0]), Reverse: true}
}

func (a *app) ls(ctx context.Context, q records.Query) error {
	for r, err := range a.notes.Query(ctx, q) {
		if err != nil {
			return err
		}
		a.list([]records.Record[Note]{r})
	}
	return nil
}

func (a *app) since(ctx context.Context, ago string) error {
	d, err := time.ParseDuration(ago)
	if err != nil {
		return err
	}
	return a.ls(ctx, records.Query{Index: "changed", From: records.Key(time.Now().Add(-d))})
}

// file is the key of an attachment. Its content is a value of any size, outside the collection.
func file(id, name string) []byte { return []byte("file/" + id + "/" + name) }

func (a *app) attach(ctx context.Context, id, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	return a.change(ctx, id, func(n *Note, tx *ledger.Tx) error {
		if n.Files == nil {
			n.Files = map[string]int64{}
		}
		n.Files[name] = info.Size()
		return tx.PutReader(ctx, file(id, name), f, info.Size(), ledger.Lazy)
	})
}

func (a *app) extract(ctx context.Context, id, name string) error {
	return a.page.View(ctx, func(s *ledger.Snapshot) error {
		v, err := s.Open(ctx, file(id, name))
		if err != nil {
			return err
		}
		defer v.Close()
		_, err = io.Copy(a.out, v)
		return err
	})
}

func (a *app) sync(ctx context.Context, url, key string) error {
	if _, err := a.repo.SetCloud(ctx, &ledger.Cloud{URL: url, KeyFile: key}); err != nil {
		return err
	}
	_, err := a.repo.Sync(ctx)
	if err == nil {
		err = a.page.WaitForMerge(ctx)
	}
	if err == nil {
		_, err = a.repo.Sync(ctx)
	}
	return err
}

func (a *app) watch(ctx context.Context, q records.Query) error {
	for notes, err := range a.notes.Live(ctx, q) {
		if err != nil {
			return err
		}
		a.list(notes)
		fmt.Fprintln(a.out, "--")
	}
	return nil
}

var errUsage = errors.New("usage: notes DIR add|edit|show|rm|ls|since|attach|extract|sync|watch ...")

// run executes a command line.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 {
		return errUsage
	}
	a, err := open(ctx, args[0], in, out)
	if err != nil {
		return err
	}
	defer a.close()
	rest := args[2:]
	switch verb := args[1]; {
	case verb == "add" && len(rest) > 0:
		return a.add(ctx, rest[0], rest[1:])
	case verb == "edit" && len(rest) == 1:
		return a.edit(ctx, rest[0])
	case verb == "show" && len(rest) == 1:
		return a.show(ctx, rest[0])
	case verb == "rm" && len(rest) == 1:
		return a.remove(ctx, rest[0])
	case verb == "ls":
		return a.ls(ctx, byTag(rest))
	case verb == "since" && len(rest) == 1:
		return a.since(ctx, rest[0])
	case verb == "attach" && len(rest) == 2:
		return a.attach(ctx, rest[0], rest[1])
	case verb == "extract" && len(rest) == 2:
		return a.extract(ctx, rest[0], rest[1])
	case verb == "sync" && len(rest) == 2:
		return a.sync(ctx, rest[0], rest[1])
	case verb == "watch":
		return a.watch(ctx, byTag(rest))
	}
	return errUsage
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "notes:", err)
		os.Exit(1)
	}
}
