package cli

import (
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// environmentFlags maps flags to the environment variables that can set them. Users may forget that
// a variable is set. So no flag is listed that deletes, discards, confirms, or selects pages or
// keys.
var environmentFlags = map[string]string{
	"dir":          "LEDGER_DIR",
	"device":       "LEDGER_DEVICE",
	"key-file":     "LEDGER_KEY_FILE",
	"lock-timeout": "LEDGER_LOCK_TIMEOUT",
	"no-progress":  "LEDGER_NO_PROGRESS",
	"json":         "LEDGER_JSON",
}

// fromEnvironment sets environmentFlags from their variables, except flags on the command line, and
// determines the directory. Flag.Changed stays false for a flag that a variable sets.
func (a *app) fromEnvironment(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name, listed := environmentFlags[f.Name]
		if !listed || f.Changed || err != nil {
			return
		}
		if value := a.env(name); value != "" && f.Value.Set(value) != nil {
			err = usagef("%s wants %s, not %q", name, flagWants(f), value)
		}
	})
	if err == nil && a.dir == "" {
		if cmd.Flags().Changed("dir") { // --dir "$DIR" with DIR unset must not open the default
			return usagef("--dir names no directory")
		}
		a.dir = a.defaultDir()
	}
	a.dir = a.path(a.dir)
	return err
}

// env returns an environment variable; "" when it is not set.
func (a *app) env(name string) string {
	value, _ := a.process.LookupEnv(name)
	return value
}

// defaultDir is the data directory of the platform; "" when the environment does not determine it.
func (a *app) defaultDir() string {
	var base string
	switch runtime.GOOS {
	case "windows":
		base = a.env("LocalAppData")
	case "darwin", "ios":
		if home := a.env("HOME"); home != "" {
			base = filepath.Join(home, "Library", "Application Support")
		}
	default:
		if base = a.env("XDG_DATA_HOME"); !filepath.IsAbs(base) {
			home := a.env("HOME")
			base = choose(home == "", "", filepath.Join(home, ".local", "share"))
		}
	}
	return choose(base == "", "", filepath.Join(base, "ledger"))
}
