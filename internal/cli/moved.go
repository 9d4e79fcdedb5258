package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// moved says of names of verbs and flags that were once what there is in their place.
var moved = map[string]string{
	"pages":                "ls lists pages, ls LEDGER/ those of one ledger, and -l shows ids and sizes",
	"stat":                 "inspect LEDGER/PAGE describes a page, inspect LEDGER/PAGE key KEY a key",
	"jsck":                 "permazen check checks typed objects, --repair repairs them",
	"show":                 "log LEDGER/PAGE --at REV -n 1 --diff shows a commit and what it changed",
	"usage":                "status --space",
	"prefetch":             "fetch brings a page and its values here",
	"compact":              "gc --compact",
	"catalog verify":       "catalog check",
	"catalog find --count": "--limit",
	"catalog lock --free":  "--release",
	"evict --keep":         "--keep-values",
	"key rotate --without": "key rm",
	"log --all":            "--heads starts from every head",
	"log --format":         "--ids prints ids, --oneline a line for each commit, --json objects",
	"log --from":           "--at starts from a revision",
	"sync --pause":         "cloud pause",
	"sync --resume":        "cloud resume",
	"tag --force":          "--move moves a name",
	"tag -f":               "--move moves a name",
	"undo --parent":        "--to says to which parent of a merge",
}

// movedHint is what moved says of a verb, or of a flag of one; "" when it is no old name.
func movedHint(cmd *cobra.Command, name string) string {
	return moved[strings.TrimPrefix(cmd.CommandPath()+" ", programName+" ")+name]
}
