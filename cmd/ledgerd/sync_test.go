//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestSyncInDirectory runs the scripts of sync with a directory as bucket.
func TestSyncInDirectory(t *testing.T) {
	p := scripts("testdata/sync", func(env *testscript.Env) {
		env.Setenv("BUCKET", "dir:"+filepath.Join(env.WorkDir, "bucket"))
	})
	p.Condition = conditions(p.Condition, "readable", true)
	testscript.Run(t, p)
}

// TestSyncInGoogleCloudStorage runs them with an emulator of Google Cloud Storage.
func TestSyncInGoogleCloudStorage(t *testing.T) {
	web := httptest.NewUnstartedServer(nil) // it has its address already, which the emulator must know
	t.Cleanup(web.Close)
	host := web.Listener.Addr().String()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, ExternalURL: "http://" + host, PublicHost: host, Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	web.Config.Handler = server.HTTPHandler()
	web.Start()
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "devices"})
	var n atomic.Int64
	p := scripts("testdata/sync", func(env *testscript.Env) {
		env.Setenv("BUCKET", fmt.Sprintf("gs://devices/script-%d", n.Add(1)))
		env.Setenv("STORAGE_EMULATOR_HOST", web.URL)
	})
	p.Condition = conditions(p.Condition, "readable", false)
	t.Run("scripts", func(t *testing.T) { testscript.Run(t, p) })
}

// conditions adds one to others.
func conditions(others func(string) (bool, error), name string, holds bool) func(string) (bool, error) {
	return func(condition string) (bool, error) {
		if condition == name {
			return holds, nil
		}
		return others(condition)
	}
}

// unreadable DIR TEXT... wants none of the texts in the names and contents of the files below DIR.
func unreadable(ts *testscript.TestScript, _ bool, args []string) {
	files := 0
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var content []byte
		if !e.IsDir() {
			files++
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		for _, text := range args[1:] {
			if strings.Contains(e.Name(), text) || bytes.Contains(content, []byte(text)) {
				return fmt.Errorf("%s shows %q", path, text)
			}
		}
		return nil
	}))
	if files == 0 {
		ts.Fatalf("%s is empty", args[0])
	}
}
