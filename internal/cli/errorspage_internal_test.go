package cli

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
)

// TestErrorsPage holds docs/errors.md to the errors of the package ledger: each has a row, with the
// kind and the exit code that it has.
func TestErrorsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../errors.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]error{
		"ErrNotFound": ledger.ErrNotFound, "ErrConflict": ledger.ErrConflict, "ErrLocked": ledger.ErrLocked, "ErrCorrupt": ledger.ErrCorrupt,
		"ErrNeedsFetch": ledger.ErrNeedsFetch, "ErrNetwork": ledger.ErrNetwork, "ErrGone": ledger.ErrGone, "ErrClosed": ledger.ErrClosed,
		"ErrReadOnly": ledger.ErrReadOnly, "ErrTooLarge": ledger.ErrTooLarge, "ErrInvalid": ledger.ErrInvalid, "ErrNoSpace": ledger.ErrNoSpace,
		"ErrUnsupported": ledger.ErrUnsupported, "ErrTxDone": ledger.ErrTxDone, "ErrNoRepository": ledger.ErrNoRepository,
		"ErrWrongKey": ledger.ErrWrongKey, "ErrKeyFilePassphrase": ledger.ErrKeyFilePassphrase, "ErrShutOut": ledger.ErrShutOut,
		"ErrNoCloud": ledger.ErrNoCloud, "ErrCloudRolledBack": ledger.ErrCloudRolledBack, "ErrCloudReplaced": ledger.ErrCloudReplaced,
		"ErrCloudDamaged": ledger.ErrCloudDamaged, "ErrDeleted": ledger.ErrDeleted,
	}
	kinds := map[string]ledger.Kind{
		"KindInternal": ledger.KindInternal, "KindInvalid": ledger.KindInvalid, "KindNotFound": ledger.KindNotFound, "KindConflict": ledger.KindConflict,
		"KindUnavailable": ledger.KindUnavailable, "KindNoSpace": ledger.KindNoSpace, "KindCorrupt": ledger.KindCorrupt, "KindClosed": ledger.KindClosed,
		"KindUnsupported": ledger.KindUnsupported, "KindPermission": ledger.KindPermission,
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(Err\w+) += `).FindAllStringSubmatch(string(source), -1) {
		if all[m[1]] == nil {
			t.Errorf("%s is not in this test", m[1])
		}
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(Err\\w+)` \\| (.*?) \\| (\\d+) \\|").FindAllStringSubmatch(string(text), -1) {
		name, kind, code := m[1], strings.Trim(m[2], "`"), m[3]
		rows[name] = true
		err := all[name]
		if err == nil {
			t.Errorf("%s is no error", name)
			continue
		}
		if want, ok := kinds[kind]; ok && want != ledger.KindOf(err) || !ok && name != "ErrCloudDamaged" {
			t.Errorf("%s has kind %d, not %s", name, ledger.KindOf(err), kind)
		}
		if got := ExitCode(err); code != strconv.Itoa(got) {
			t.Errorf("%s has exit code %d, not %s", name, got, code)
		}
	}
	for name := range all {
		if !rows[name] {
			t.Errorf("%s has no row", name)
		}
	}
}
