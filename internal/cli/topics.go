package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// helpCommand is help for verbs and topics; an unknown one is a usage error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Explain a command or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || target == nil {
				return withHint(usagef(cmd, "there is no help about %q", strings.Join(args, " ")), "%s lists the verbs and topics", programName+" --help")
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			var found []string
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && strings.HasPrefix(c.Name(), toComplete) {
					found = append(found, c.Name()+"\t"+c.Short)
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// topics are what help explains beside the verbs.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "names", Short: "How pages and keys are named", Long: namesTopic},
		{Use: "revisions", Short: "How commits are named", Long: revisionsTopic},
		{Use: "merging", Short: "How several heads come together", Long: mergingTopic},
		{Use: "json", Short: "What --json prints", Long: jsonTopic},
		{Use: "environment", Short: "Environment variables", Long: environmentTopic},
		{Use: "exit", Short: "Exit codes", Long: exitTopic},
	}
}

const namesTopic = `Pages

    LEDGER                 the root page of a ledger
    LEDGER/NAME            a page with a human name; its id is derived from both names, so that
                           two devices agree on it
    LEDGER/0123...cdef     a page by its id, 32 hexadecimal digits

The first slash divides; NAME may have more. In both parts %XX stands for the byte with that
hexadecimal number: %2F is a slash in the name of a ledger, %25 a percent sign, %00 a NUL. A
name that looks like an id is told apart by writing one of its characters so.

Keys

A key is any bytes, up to 4096. On the command line it is text as it stands. Keys that are
not printable are quoted in the output, as in "a\x00b"; with --hex keys and prefixes are
hexadecimal digits, as arguments and in the output. A key that begins with - comes
behind --, as in: ledgerd get notes -- -key

An imported file is two entries: its path with the content, and 0x00 attr 0x00 and its path
with type, mode and modification time. A directory that is not empty has the second alone.
ls, inspect, diff, rm, restore and export take both as one.`

const revisionsTopic = `    HEAD                   the newest commit
    NAME                   a tag
    3f2a9c                 a commit whose id begins so: at least 4 digits, and no other does
    2024-05-01             the newest commit up to the end of that day, in UTC
    2024-05-01T12:00:00Z   the newest commit up to that time
    REV~n                  the nth parent of REV; ~ alone is ~1. Of a merge the newer parent counts

HEAD~n reaches back to the implied first commit of every page, which is empty.`

const mergingTopic = `A page has several heads when commits were made on the same one without knowing of each other: by
two devices, or with put --parent. status and log --graph show them. HEAD is the newest.

put, rm, import, restore and undo bring the heads of their page together when they are done, unless
--no-merge is given; merge does nothing else. Verbs that read leave heads as they are. A merge
is a commit with two parents, which log shows:

    - a key that one side has changed becomes what it is there; removing is a change too
    - a key that both have changed to the same value has that value
    - a key that both have changed to different values is in conflict: a rule decides

The rule is last-one-wins: the side wins whose commit wrote that key later, whatever else the sides
have done since. merge --rule chooses others for one merge. Nothing is lost by a decision:

    ledgerd log LEDGER/PAGE --conflicts      what was decided, by which rule
    ledgerd why LEDGER/PAGE KEY              how a key came to its value, and what lost
    ledgerd undo LEDGER/PAGE COMMIT          as if COMMIT had not been: what it won over comes back

Merging needs nobody's consent: every device that merges the same heads by the same rules makes the
very same commit. An app can set rules of its own in Go for each page and prefix of keys.`

const jsonTopic = `With --json each line of the standard output is one JSON object; members may be added in later
versions. Bytes that come from a page (BYTES below: keys, values, names of ledgers and pages) are a
string when they are valid UTF-8, and {"base64":"..."} otherwise; --hex is for arguments only then.
Control and format characters are escaped. Sizes are numbers of bytes, times are RFC 3339 in UTC,
ids and objects are hexadecimal. Members with ? may be missing.

    put rm restore   {"page","commit","changed":BOOL,"merge"?:ID,"conflicts"?}; merge is the commit
                      that
                      brought the heads together afterwards
    restore --dry-run
                      {"page","added","changed","removed","dryRun":true}, the numbers of keys
    undo             as put and {"keys","kept","dryRun"?:BOOL}, the numbers of keys
    import           as put and {"added","updated","removed","unchanged","bytes","warnings",
                      "repositoryCreated"?:BOOL}
    import --dry-run {"page","added","changed","removed","unchanged","dryRun":true}
    export PATH      {"page","path","files","bytes","warnings","replaced"?,"dryRun"?:BOOL}
    get              {"key":BYTES,"size","priority":"eager"|"lazy","value":BYTES}
    ls LEDGER/PAGE, inspect key
                      {"key":BYTES,"size","priority","inline":BOOL,"object"?,
                      "type"?:"file"|"link"|"directory","mode"?:"-rw-r--r--","mtime"?,
                      "target"?:BYTES}
    ls --keys-only   {"key":BYTES}
    log              COMMIT = {"commit","time","timestamp","generation","root","parents":[ID],
                      "device"?,"message"?,"head"?:BOOL,"tags"?:[NAME]}
    log --conflicts  the same, and behind each merge its CONFLICTs
    merge            for each merge {"page","commit","left","right",
                      "how":"three-way"|"equal"|"subset"|"rest"|"known",
                      "conflicts"}, then its CONFLICTs; with one head {"page","commit",
                      "changed":false}
                      CONFLICT = {"merge","key":BYTES,"outcome":"left"|"right"|"new"|"deleted",
                      "rule",
                      "leftWriter"?,"rightWriter"?,"left"?:ENTRY,"right"?:ENTRY,"result"?:ENTRY},
                      ENTRY = SIDE, see diff, and "value"?:BYTES when it is short
    why              for each step {"commit","time","device"?,"message"?,"parents":[ID],
                      "entry"?:ENTRY,"outcome"?,"rule"?,
                      "lost":[{"writer"?,"time"?,"device"?,"entry"?:ENTRY}]}
    watch            {"commit","base","time","device"?,"message"?,
                      "part":"whole"|"first"|"middle"|"last",
                      "changes":[{"key":BYTES,"op":"added"|"removed"|"changed","size"?,
                      "value"?:BYTES}]};
                      the changes are those between base and commit, value is there when it is short
    log --diff       the same, and behind each commit as diff
    diff             {"change":"added"|"removed"|"changed","key":BYTES,"content":BOOL,
                      "attributes":BOOL,
                      "old"?:SIDE,"new"?:SIDE}, SIDE = {"size","priority","inline","object"?};
                      content and attributes tell which of the two entries of a file differ
    tag              {"tag","commit","deleted"?:BOOL,"dryRun"?:BOOL}
    ls, ls LEDGER/   {"page","ledger":BYTES,"name"?:BYTES,"id","size","lastClosed"?}
    status           {"dir","id","format","pages","size","heads","unsynced","cloud"?:CLOUD and
                      {"lastSuccess"?,
                      "oldestUnsynced"?,"since"?,"classA","classB","free","upBytes","downBytes",
                      "retries",
                      "entries","applied","checkpoints","costEstimateDollars"}}, then for each page
                      the members of ls and {"heads","newest"?,"time"?,"unsynced","aheadSeconds"?,
                      "torn"?:[TEXT],"indexRebuilt"?:TEXT,"error"?,"sync"?:{"upload","download",
                      "position",
                      "oldestUnsynced"?,"lastSuccess"?,"serverTime"?,"paused"?,"syncError"?}};
                      upload and download are idle, pending, in progress, failing or needs the user
    sync, clone      {"page","id","created":BOOL,"position","unsynced","missing"?,"error"?}, then
                      {"pages","failed","upBytes","downBytes","classA","classB","retries"}
    cloud set, show, unset
                      CLOUD = {"url","bucket","algorithm","plaintext":BOOL,"keyFile"?,
                      "passphrase"?:BOOL,
                      "credentialsFile"?,"device","paused":BOOL,"error"?}; unset also
                      {"dryRun"?:BOOL}
    cloud probe      {"promise","ok":BOOL,"error"?}
    cloud check      {"page","objects","bytes","damaged":[{"object","message"}],"more"?,
                      "newer"?:[{"object","message"}],"repaired":BOOL,"missing"?,"error"?}
    cloud leak       {"ledgers","objects","bytes","pages":[{"name","objects","bytes","entries",
                      "packs","checkpoints",
                      "epochs","lengths","first"?,"last"?,"days","hours":[24]}],"notPadded":[],
                      "moreNotPadded"?}
    cloud gc         {"page","givenUpCommits","cut":BOOL,"deletedObjects","deletedBytes",
                      "waitingObjects",
                      "waitingBytes"}
    key init, show   {"path","id"}; key show without PATH is cloud show
    key ls, add, rm, rotate, recover
                      {"bucket","changes","dataKeys","slots":[{"id","kind","label"?,"own"?:BOOL}],
                      "words"?}
    rm --dry-run     {"page","keys","dryRun":true}
    status --space   the members of ls and {"values","nodes","commits","rest","index","other",
                      "garbage","open"?:BOOL,
                      "inCloudOnly"?:BOOL,"sizeBefore"?,"unsynced","evictable":BOOL,"bar"?,
                      "reason"?,"error"?}, then {"size","values","nodes","commits",
                      "rest","index","other","garbage","evictable","diskFree"?}
    gc               {"page","prunedCommits","deletedPieces","deletedNodes","deletedBytes",
                      "retentionInBucket"?:BOOL,"dryRun"?:BOOL}
    gc --compact     the same, and then {"page","bytesBefore","bytesAfter","freedBytes","segments",
                      "dryRun"?:BOOL}
    evict            {"page","evicted":BOOL,"bytes","bar"?,"reason"?,"discarded"?:BOOL,
                      "dryRun"?:BOOL}
    delete           {"page","bytes","inCloud":BOOL,"everywhere"?:BOOL,"discarded"?:BOOL,
                      "dryRun"?:BOOL}
    delete --from-history
                      {"page","prunedCommits","bytes","inBucket":BOOL,"dryRun"?:BOOL}
    fetch            {"page","values","pieces","bytes"}
    check            {"page","id","ok":BOOL,"commits","nodes","pieces","rows","bytes","torn"?,
                      "indexRebuilt"?,
                      "problems":[{"where","key"?,"message","repaired":BOOL}]}; before, for each
                      problem of
                      the repository's own files, {"where","message","repaired":BOOL}
    init             {"dir","created":BOOL}
    backup DIR       {"dir","size"}
    inspect          {"page","ledger":BYTES,"name"?:BYTES,"id","heads":[ID],"newest":COMMIT,
                      "segments","segmentBytes","indexBytes"}, then tree
    inspect rows     {"row","value"}
    inspect commits  {"commit","generation","time","added","removed","updated","valueBytes","nodes",
                      "nodeBytes","newNodes","newNodeBytes","sharedNodeBytes"}
    inspect tree     {"root","depth","nodes","nodeBytes","entries","keyBytes","inlineEntries",
                      "inlineBytes",
                      "valueBytes","lazyEntries","levels":[{"level","nodes","entries","children",
                      "bytes","maxBytes"}]}
    inspect pieces   {"stored","values","bytes","pieces"}; with KEY {"piece","kind":"chunk"|"index",
                      "size"}
    inspect refs     {"kind","least","most","destinations","references"}

On the standard error there are {"warning","hint"?} for what was left out, from serve with {"time"},
and at last {"error","kind","hint"?,"exit"}, where kind is usage, invalid, notFound, conflict,
unavailable, noSpace, corrupt, closed, unsupported, permission or internal.

JSON lines, which export and import --format jsonl write and read, are entries by themselves, one a
line, its members in this order:

    {"key":BYTES,"priority"?:"eager"|"lazy","value":BYTES}`

const environmentTopic = `These variables of the environment are read, and no others:

    LEDGER_DIR            directory of the repository, as --dir
    LEDGER_DEVICE         name of this device, as --device
    LEDGER_KEY_FILE       file with the master key, as --key-file of cloud set and clone
    LEDGER_PASSPHRASE     passphrase of a cloud that was set with one; it has no flag, since other
                          users can see the arguments of a process
    LEDGER_LOCK_TIMEOUT   such as 30s, as --lock-timeout
    LEDGER_NO_PROGRESS    true or false, as --no-progress
    LEDGER_JSON           true or false, as --json

A flag on the command line wins over its variable. An empty variable counts as none. Flags that
delete, confirm or select have no variable.

Without LEDGER_DIR and --dir the repository is the directory ledger in the data directory of the
platform: $XDG_DATA_HOME or ~/.local/share, ~/Library/Application Support on macOS, %LocalAppData%
on Windows. The client of Google Cloud Storage reads the variables of that service, such as
GOOGLE_APPLICATION_CREDENTIALS.`

const exitTopic = `    0   done
    1   error: it was not done
    2   the arguments are wrong, whatever is stored, or a flag is missing; an argument that names
        what is not there is an error (1)
    3   partly done: something was left out, with a warning for each; or an error came behind what
                      was
        done; or the verb is done, and its output could not be written
   10   the directory holds no repository
   11   another process holds the repository
   12   wrong key
   20   damage was found
  130   the verb was interrupted`
