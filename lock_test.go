package ledger_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
)

// holdLockVariable makes the test binary open the repository that it names and hold it until its
// input ends.
const holdLockVariable = "LEDGER_TEST_HOLD_LOCK"

func holdLock(dir string) int {
	r, err := ledger.Open(testContext, dir, nil)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent closes it
	if err := r.Close(); err != nil {
		return 1
	}
	return 0
}

func TestSecondOpenInOneProcessNamesItself(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	_, err := ledger.Open(t.Context(), dir, nil)
	wantLocked(t, err, os.Getpid())
	_, err = ledger.Open(t.Context(), dir, &ledger.Options{ReadOnly: true})
	wantLocked(t, err, os.Getpid())
	closeIt(t, r)
	closeIt(t, open(t, dir, nil))
	if _, err := os.Stat(filepath.Join(dir, "lock.pid")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("lock.pid after Close: %v", err)
	}
}

func wantLocked(t *testing.T, err error, pid int) {
	t.Helper()
	if !errors.Is(err, ledger.ErrLocked) {
		t.Fatalf("got %v, want ErrLocked", err)
	}
	e, ok := errors.AsType[*ledger.LockedError](err)
	if !ok || e.PID != pid {
		t.Fatalf("got %+v, want process %d", e, pid)
	}
}

func TestAnotherProcessHoldsTheLock(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdLockVariable+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != "locked" {
		t.Fatalf("the other process says %q", line)
	}
	_, err = ledger.Open(t.Context(), dir, nil)
	wantLocked(t, err, cmd.Process.Pid)
	_, err = ledger.Open(t.Context(), dir, &ledger.Options{LockTimeout: 30 * time.Millisecond})
	wantLocked(t, err, cmd.Process.Pid)
	if e, _ := errors.AsType[*ledger.LockedError](err); e.Waited < 30*time.Millisecond {
		t.Errorf("waited %s", e.Waited)
	}

	opened := make(chan error, 1)
	go func() {
		r, err := ledger.Open(t.Context(), dir, &ledger.Options{LockTimeout: 5 * time.Minute})
		if err == nil {
			err = r.Close()
		}
		opened <- err
	}()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("open after the other process: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestLockOfACrashedProcessIsFree(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdLockVariable+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	closeIt(t, open(t, dir, nil))
}

func TestReadersShareTheLock(t *testing.T) {
	dir := t.TempDir()
	closeIt(t, open(t, dir, nil))
	a := open(t, dir, &ledger.Options{ReadOnly: true})
	b := open(t, dir, &ledger.Options{ReadOnly: true})
	_, err := ledger.Open(t.Context(), dir, nil)
	wantLocked(t, err, 0)
	closeIt(t, a)
	closeIt(t, b)
	closeIt(t, open(t, dir, nil))
}
