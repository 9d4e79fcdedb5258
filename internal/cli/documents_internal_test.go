package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	span     = regexp.MustCompile("`([^`\n]+)`")
	shell    = regexp.MustCompile(`[;|&()]|\$\(|(^|\s)#\s`)
	flagName = regexp.MustCompile(`^--?[a-z][a-z-]*$`)
)

// commandsOf returns what a document has of commands of the tool, as words: those in blocks, and
// those within sentences.
func commandsOf(root *cobra.Command, text string) (out [][]string) {
	add := func(command string) {
		words := strings.Fields(command)
		for i, w := range words {
			if w == "ledgerd" {
				out = append(out, words[i+1:])
				return
			}
		}
		if strings.Contains(command, " --") {
			if c, _, err := root.Find(words[:1]); err == nil && c != root {
				out = append(out, words)
			}
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if command, is := strings.CutPrefix(line, "    "); is || strings.HasPrefix(line, "$ ") {
			if !is {
				command = strings.TrimPrefix(line, "$ ")
			}
			if strings.Contains(command, "ledgerd ") && !strings.Contains(command, "go run") && !strings.Contains(command, "go build") {
				for _, part := range shell.Split(command, -1) {
					if strings.Contains(part, "ledgerd ") {
						add(part)
					}
				}
			}
			continue
		}
		for _, m := range span.FindAllStringSubmatch(line, -1) {
			add(m[1])
		}
	}
	return out
}

// TestDocumentsNameVerbsAndFlagsThatExist holds the commands of the README and of docs/ to the
// tool.
func TestDocumentsNameVerbsAndFlagsThatExist(t *testing.T) {
	a := &app{}
	root := a.root()
	root.InitDefaultHelpCmd()
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range append(paths, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range commandsOf(root, string(text)) {
			found++
			if problem := problemOf(root, words); problem != "" {
				t.Errorf("%s: ledgerd %s: %s", path, strings.Join(words, " "), problem)
			}
		}
	}
	if found < 100 {
		t.Errorf("%d commands were found, which cannot be all", found)
	}
}

// problemOf says what the tool does not know of a command.
func problemOf(root *cobra.Command, words []string) string {
	c, isValue := root, false
	for _, w := range words {
		w, _, hasValue := strings.Cut(w, "=")
		switch {
		case isValue:
			isValue = false
		case !flagName.MatchString(w):
			if next, _, err := c.Find([]string{w}); err == nil {
				c = next
			} else if c == root {
				return "no verb " + w
			}
		default:
			name := strings.TrimLeft(w, "-")
			f := c.Flag(name)
			if f == nil && len(name) == 1 {
				if f = c.Flags().ShorthandLookup(name); f == nil {
					f = root.PersistentFlags().ShorthandLookup(name)
				}
			}
			if f == nil {
				return "no flag " + w
			}
			isValue = f.NoOptDefVal == "" && !hasValue
		}
	}
	return ""
}
