//go:build unix

package main

import (
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scripts")

func TestMain(m *testing.M) {
	syscall.Umask(0o022) // the scripts look at modes
	testscript.Main(m, map[string]func(){
		"ledgerd": main,
		"hold":    hold,
		"repeat":  repeat,
		"numbers": numbers,
		"browse":  browse,
	})
}

// hold is a program of the scripts: hold DIR FILE keeps the repository open, makes FILE, and waits
// for an interrupt.
func hold() {
	repo, err := ledger.Open(ctx(), os.Args[1], nil)
	if err != nil {
		panic(err)
	}
	defer repo.Close() // the process ends
	interrupted := make(chan os.Signal, 1)
	notify(interrupted) // before the file says that it may be interrupted
	if err := os.WriteFile(os.Args[2], nil, 0o600); err != nil {
		panic(err)
	}
	<-interrupted
}

// repeat is a program of the scripts: repeat N TEXT prints TEXT N times.
func repeat() {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(strings.Repeat(os.Args[2], n)) // a closed output is what some scripts are about
}

// numbers is a program of the scripts: numbers N prints the numbers from 1 to N, a line each.
func numbers() {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	var b []byte
	for i := range n {
		b = append(strconv.AppendInt(b, int64(i+1), 10), '\n')
	}
	os.Stdout.Write(b) // see repeat
}

func TestScripts(t *testing.T) {
	testscript.Run(t, scripts("testdata/script", func(*testscript.Env) {}))
}

// scripts returns how the scripts in a directory are run.
func scripts(dir string, setup func(*testscript.Env)) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LEDGER_DIR", filepath.Join(env.WorkDir, "repo"))
			profiles, err := filepath.Abs("../../indexeddb/profile/testdata/chromium-156")
			if err != nil {
				return err
			}
			env.Setenv("PROFILES", profiles)
			env.Setenv("LEDGER_LOCK_TIMEOUT", "5m") // whoever looks at a repository for a moment may take seconds on a busy machine
			setup(env)
			return nil
		},
		Condition: func(condition string) (bool, error) {
			switch condition {
			case "root":
				return os.Geteuid() == 0, nil
			case "diff":
				_, err := exec.LookPath("diff")
				return err == nil, nil
			case "nohup":
				return signal.Ignored(syscall.SIGHUP), nil
			}
			return false, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":     exits,
			"damage":    damage,
			"removeall": removeAll,
			"fifo":      fifo,
			"waitfile":  waitFile,
			"touchat":   touchAt,
			"closed":    closed,
			"count":     count,
			"keep":      keep,
			"lines":     lines,

			"unreadable": unreadable,
		},
	}
}

// exits N PROGRAM ARGS... runs a program and wants the exit code N. Its output goes to the files
// exit.out and exit.err.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := err.(*exec.ExitError); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("run %v: %v", args[1:], err)
	}
	if got != want {
		ts.Fatalf("%v: exit code %d, want %d", args[1:], got, want)
	}
	ts.Check(os.WriteFile(ts.MkAbs("exit.out"), []byte(ts.ReadFile("stdout")), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("exit.err"), []byte(ts.ReadFile("stderr")), 0o600))
}

// damage DIR PATTERN flips a bit of 64 bytes in the midst of the largest file of a name below a
// directory, of several about as large in the newest.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: damage DIR PATTERN")
	}
	var name string
	var size int64
	var at time.Time
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil || !matches(args[1], path) {
			return err
		}
		// Of two that are about as large, one stands for the other: the newer one counts.
		if n := info.Size(); n > 2*size || 2*n > size && info.ModTime().After(at) {
			name, size, at = path, n, info.ModTime()
		}
		return nil
	}))
	if size == 0 {
		ts.Fatalf("no file %s below %s", args[1], args[0])
	}
	content, err := os.ReadFile(name)
	ts.Check(err)
	for i := range min(64, size/2) { // more than the header of a record, which a reader may do without
		content[size/2+i] ^= 0x40
	}
	ts.Check(os.WriteFile(name, content, 0o600))
}

// removeAll DIR PATTERN removes the files of a name below a directory.
func removeAll(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: removeall DIR PATTERN")
	}
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && matches(args[1], path) {
			return os.Remove(path)
		}
		return err
	}))
}

// matches reports whether the end of a path, of as many parts as the pattern has, matches it.
func matches(pattern, path string) bool {
	parts := strings.Split(filepath.ToSlash(path), "/")
	match, _ := filepath.Match(pattern, strings.Join(parts[max(0, len(parts)-1-strings.Count(pattern, "/")):], "/"))
	return match
}

// fifo PATH makes a named pipe.
func fifo(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o600))
}

// count FILE N wants N lines in a file.
func count(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); got != want {
		ts.Fatalf("%s has %d lines, want %d", args[0], got, want)
	}
}

// closed PROGRAM ARGS... runs a program whose standard output is closed by its reader at once, and
// wants exit code 0 and silence.
func closed(ts *testscript.TestScript, _ bool, args []string) {
	r, w, err := os.Pipe()
	ts.Check(err)
	ts.Check(r.Close())
	path, err := exec.LookPath(args[0])
	if err != nil {
		path = filepath.Join(strings.Split(ts.Getenv("PATH"), string(os.PathListSeparator))[0], args[0])
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"LEDGER_DIR=" + ts.Getenv("LEDGER_DIR"), "PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME")}
	cmd.Stdout = w
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err = cmd.Run()
	ts.Check(w.Close())
	if err != nil || stderr.Len() > 0 {
		ts.Fatalf("%v: %v, standard error %q; want neither", args, err, stderr.String())
	}
}

// keep VARIABLE [REGEXP] sets an environment variable to the last standard output, or to what the
// first group of the last match in it has.
func keep(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.TrimSpace(ts.ReadFile("stdout"))
	if len(args) == 2 {
		found := regexp.MustCompile("(?m)"+args[1]).FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			ts.Fatalf("%q does not match %s", text, args[1])
		}
		text = found[len(found)-1][1]
	}
	ts.Setenv(args[0], text)
}
