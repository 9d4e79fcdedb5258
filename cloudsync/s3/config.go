package s3

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

// amazon is the default endpoint.
const amazon = "https://s3.amazonaws.com"

// place is a parsed URL.
type place struct {
	endpoint string // empty if the URL has none
	bucket   string
	prefix   bucket.Prefix
}

// parse reads a URL of a bucket.
func parse(u string) (place, error) {
	var at place
	bad := func() (place, error) {
		return place{}, fmt.Errorf("%w: %q is neither s3://bucket/prefix nor s3:https://host/bucket/prefix", base.ErrInvalid, u)
	}
	rest, ok := strings.CutPrefix(u, "s3:")
	if !ok {
		return bad()
	}
	if path, ok := strings.CutPrefix(rest, "//"); ok {
		rest = path
	} else {
		e, err := url.Parse(rest)
		if err != nil || e.Scheme != "https" && e.Scheme != "http" || e.Host == "" || e.User != nil || e.RawQuery != "" || e.Fragment != "" {
			return bad()
		}
		at.endpoint, rest = e.Scheme+"://"+e.Host, strings.TrimPrefix(e.Path, "/")
	}
	name, path, _ := strings.Cut(rest, "/")
	if len(name) < 3 || len(name) > 63 || bucket.CheckName(name) != nil {
		return bad()
	}
	at.bucket = name
	prefix, err := bucket.ParsePrefix(path)
	if err != nil {
		return place{}, fmt.Errorf("prefix of %q: %w", u, err)
	}
	at.prefix = prefix
	return at, nil
}

// config has the parameters for reaching a store.
type config struct {
	host        string
	secure      bool
	region      string // empty: Amazon is asked
	credentials *credentials.Credentials
}

// configure finds the parameters that the URL lacks. endpoint is empty if the URL has none.
func configure(endpoint string) (config, error) {
	profile, err := readProfile()
	if err != nil {
		return config{}, err
	}
	if endpoint == "" {
		endpoint = first(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), profile["endpoint_url"], amazon)
	}
	e, err := url.Parse(endpoint)
	if err != nil || e.Scheme != "https" && e.Scheme != "http" || e.Host == "" || strings.Trim(e.Path, "/") != "" {
		return config{}, fmt.Errorf("%w: %q is no endpoint: https://host is wanted", base.ErrInvalid, endpoint)
	}
	c := config{host: e.Host, secure: e.Scheme == "https"}
	c.region = first(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), profile["region"])
	if c.region == "" && endpoint != amazon {
		c.region = "us-east-1" // accepted by stores without regions
	}
	c.credentials = credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
	})
	return c, nil
}

// readProfile returns the configuration of the profile in use, nil if there is no file.
func readProfile() (map[string]string, error) {
	file := os.Getenv("AWS_CONFIG_FILE")
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, nil //nolint:nilerr // no home, no file
		}
		file = filepath.Join(home, ".aws", "config")
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read profiles: %w", err)
	}
	all, err := ini.Load(content)
	if err != nil {
		return nil, fmt.Errorf("read profiles in %s: %w: %w", file, base.ErrInvalid, err)
	}
	name := first(os.Getenv("AWS_PROFILE"), "default")
	for _, section := range []string{"profile " + name, name} {
		if s, err := all.GetSection(section); err == nil {
			return s.KeysHash(), nil
		}
	}
	return nil, nil
}

// first returns the first of the words that is not empty.
func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
