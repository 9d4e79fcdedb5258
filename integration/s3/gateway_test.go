package s3_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/s3"
)

// Variables with which the test binary runs itself as the gateway.
const (
	dirVariable  = "S3_TEST_GATEWAY_DIR"
	addrVariable = "S3_TEST_GATEWAY_ADDR"
	accessKey    = "access"
	secretKey    = "secret-of-the-test"
)

// TestMain is the gateway where the variables say so: it keeps package variables, changes the
// working directory, and runs only once in a process.
func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		if err := serve(ctx, dir, os.Getenv(addrVariable)); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serve(ctx context.Context, dir, addr string) error {
	side := filepath.Join(filepath.Dir(dir), "metadata") // not below dir
	if err := os.MkdirAll(side, 0o700); err != nil {
		return err
	}
	store, err := meta.NewSideCar(side)
	if err != nil {
		return err
	}
	files, err := posix.New(dir, store, posix.PosixOpts{SideCarDir: side})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, files, &embedgw.Config{
		RootUserAccess: accessKey, RootUserSecret: secretKey, Ports: []string{addr}, MaxConnections: 1000, MaxRequests: 1000,
		MultipartMaxParts: 10_000, Quiet: true, KeepAlive: true, HealthPath: "/health",
	})
}

// gateway starts a gateway and returns the address of its S3 service and a client.
func gateway(t *testing.T) (endpoint string, client *minio.Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() + "/files"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), dirVariable+"="+dir, addrVariable+"="+addr)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for s := bufio.NewScanner(out); s.Scan(); {
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-drained
		_ = cmd.Wait() // its context has ended
	})
	client, err = minio.New(addr, &minio.Options{Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	for { // until it answers, or the test's time ends
		if _, err := client.ListBuckets(t.Context()); err == nil {
			break
		} else if t.Context().Err() != nil {
			t.Fatal(err)
		}
		select {
		case <-drained:
			t.Fatal("the gateway has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_REGION": "us-east-1", "AWS_CONFIG_FILE": "/dev/null",
		"AWS_ENDPOINT_URL_S3": "", "AWS_ENDPOINT_URL": "",
	} {
		t.Setenv(k, v)
	}
	return "http://" + addr, client
}

func open(t *testing.T, url string) *s3.Bucket {
	t.Helper()
	b, err := s3.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestConformance runs the whole suite, each check in a bucket of its own.
func TestConformance(t *testing.T) {
	endpoint, client := gateway(t)
	n := 0
	buckettest.Run(t, func(t *testing.T) bucket.Bucket {
		n++
		name := fmt.Sprintf("bucket-%d", n)
		if err := client.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		return open(t, "s3:"+endpoint+"/"+name)
	}, buckettest.Options{Paths: true, Hasty: true})
}

// TestEndpointOfTheEnvironment: the URL names bucket and prefix alone. Objects of others are passed
// over.
func TestEndpointOfTheEnvironment(t *testing.T) {
	endpoint, client := gateway(t)
	t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
	if err := client.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	whole, sub := open(t, "s3://bucket"), open(t, "s3://bucket/some/where/")
	for _, b := range []*s3.Bucket{whole, sub} {
		if err := b.PutIfAbsent(t.Context(), "a", 1, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.PutObject(t.Context(), "bucket", "some/where/Foreign Name", strings.NewReader("x"), 1, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	infos, err := sub.List(t.Context(), "", "", 10)
	if err != nil || len(infos) != 1 || infos[0].Name != "a" {
		t.Errorf("%v, %v", infos, err)
	}
	absent := open(t, "s3://absent")
	if err := absent.PutIfAbsent(t.Context(), "a", 1, strings.NewReader("x")); bucket.ClassOf(err) != bucket.ClassNotFound {
		t.Error(err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if err := open(t, "s3://bucket").PutIfAbsent(t.Context(), "b", 1, strings.NewReader("x")); bucket.ClassOf(err) != bucket.ClassDenied {
		t.Error(err)
	}
}
