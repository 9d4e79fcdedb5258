package daemon

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestRunWhereNobodyMayLook looks for the server of a repository into which the user may not look.
// Whoever then opens the repository says what is wrong with it.
func TestRunWhereNobodyMayLook(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700) // for who removes it
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with what it may no more
		if os.Geteuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				done <- err
				return
			}
		}
		_, ok, err := Run(t.Context(), dir, Request{}, strings.NewReader(""), nil, nil)
		if ok {
			t.Error("a server was found")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
