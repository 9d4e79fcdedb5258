package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
)

// object is what a verb prints: names and values alternate, in the order of output. With --json it
// is a JSON object. For people it is a line, a block or a line of a table, by the same names. A
// name may end in marks:
//
//	?  omit the member if its value is zero or empty
//	!  only with --json
//	~  only for people
type object []any

// plain is a text that needs no name before it in a line for people.
type plain string

// member is a member of an object, without marks.
type member struct {
	name  string
	value any
}

// members returns the members that --json prints, or those that people see.
func (o object) members(forPeople bool) []member {
	var all []member
	for i := 0; i < len(o); i += 2 {
		name := strings.TrimRight(o[i].(string), "?!~")
		marks := o[i].(string)[len(name):]
		hidden := strings.Contains(marks, choose(forPeople, "!", "~"))
		if !hidden && !(strings.Contains(marks, "?") && isNone(reflect.ValueOf(encoded(o[i+1])))) {
			all = append(all, member{name, o[i+1]})
		}
	}
	return all
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte("{")
	for i, m := range o.members(false) {
		text, err := marshal(encoded(m.value))
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(strconv.AppendQuote(b, m.name), ':'), text...)
	}
	return append(b, '}'), nil
}

// isNone reports whether a value is zero or empty.
func isNone(v reflect.Value) bool {
	return !v.IsValid() || v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// encoded returns the value to encode: errors and ids become text, and the zero time becomes "".
func encoded(value any) any {
	switch v := value.(type) {
	case time.Time:
		return choose(v.IsZero(), "", timeText(v))
	case ledger.CommitID:
		return choose(v.IsZero(), "", v.String())
	case json.Marshaler:
		return v
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	return value
}

// capitalized matches the words in a name after the first one.
var capitalized = regexp.MustCompile(`[A-Z][a-z]*`)

// counts matches the words of a number that stand after it: 3 commits, 2 added, 1 missing.
var counts = regexp.MustCompile(`(s|ed|ing)$`)

// words returns the words of a name: deletedBytes is "deleted bytes", and classA "class A".
func (m member) words() string {
	return capitalized.ReplaceAllStringFunc(m.name, func(word string) string {
		return " " + choose(len(word) == 1, word, strings.ToLower(word))
	})
}

// text formats the value for people; "" for none and for false.
func (m member) text() string {
	switch v := m.value.(type) {
	case size:
		return sizeText(int64(v))
	case time.Time:
		return choose(v.IsZero(), "", clockText(v))
	case ledger.CommitID:
		return choose(v.IsZero(), "", v.Short())
	case jsonBytes:
		return quoted(string(v))
	case bool:
		return choose(v, "yes", "")
	case float64:
		return fmt.Sprintf("%.6f", v)
	case object:
		return v.phrases()
	case []object:
		return ""
	case []string:
		return printable(strings.Join(v, ", "))
	case map[string]string:
		pairs := objects(slices.Sorted(maps.Keys(v)), func(key string) string { return quoted(key + "=" + v[key]) })
		return strings.Join(pairs, ", ")
	}
	return printable(fmt.Sprint(choose(m.value == nil, "", encoded(m.value))))
}

// isNumber reports whether the value is a number, of which zero is worth showing.
func (m member) isNumber() bool {
	v := reflect.ValueOf(m.value)
	_, named := m.value.(fmt.Stringer)
	return v.IsValid() && !named && (v.CanInt() || v.CanUint())
}

// phrase says a member in a line for people: "3 commits", "1.0 KiB deleted", "in cloud", "label x".
// Of a list of objects it is the number. It is "" for an empty or zero value.
func (m member) phrase() string {
	words, text := m.words(), m.text()
	if list, ok := m.value.([]object); ok {
		return member{m.name, len(list)}.phrase()
	}
	if text == "" || m.isNumber() && reflect.ValueOf(m.value).IsZero() {
		return ""
	}
	switch m.value.(type) {
	case size:
		return strings.TrimSpace(text + " " + strings.TrimSpace(strings.TrimSuffix(strings.Replace(words, "bytes", "", 1), "size")))
	case bool:
		return words
	case plain:
		return text
	}
	if m.isNumber() && counts.MatchString(words) {
		return text + " " + choose(text == "1", singular(words), words)
	}
	return words + " " + text
}

// phrases says all members in one line.
func (o object) phrases() string {
	return joined(", ", objects(o.members(true), member.phrase)...)
}

// lines prints an object for people: its first value, a colon and what remains. The objects in its
// lists follow below it.
func (a *app) lines(indent, done string, o object) {
	all := o.members(true)
	rest := joined(", ", append([]string{done}, objects(all[1:], member.phrase)...)...)
	a.printf("%s%s\n", indent, joined(": ", all[0].text(), rest))
	for _, m := range all[1:] {
		if list, ok := m.value.([]object); ok {
			for _, one := range list {
				a.lines(indent+"  ", "", one)
			}
		}
	}
}

// show prints an object: as JSON, or in a line for people.
func (a *app) show(o object) {
	if a.json {
		a.emit(o)
	} else {
		a.lines("", "", o)
	}
}

// outcome prints what a verb has done with the first value of the object, unless --quiet is set.
// done is a participle, such as "evicted", or "". With dry, the verb has changed nothing.
func (a *app) outcome(dry bool, done string, o object) {
	switch {
	case a.json:
		a.emit(append(slices.Clip(o), "dryRun?", dry))
	case dry:
		a.lines("", choose(done == "", "", "to be "+done), o)
	case !a.quiet:
		a.lines("", done, o)
	}
}

// block prints an object: as JSON, or with a line for each member. An inner object is an indented
// block. Lists of objects follow as tables.
func (a *app) block(indent string, o object) {
	if a.json {
		a.emit(o)
		return
	}
	all := slices.DeleteFunc(o.members(true), func(m member) bool { return m.text() == "" })
	width := widest(objects(all, member.words)...)
	for _, m := range all {
		if inner, ok := m.value.(object); ok {
			a.printf("%s%s\n", indent, m.words())
			a.block(indent+"  ", inner)
			continue
		}
		a.printf("%s%*s  %s\n", indent, width, m.words(), m.text())
	}
	for _, m := range o.members(true) {
		if list, ok := m.value.([]object); ok && len(list) > 0 {
			a.printf("\n")
			a.table(list)
		}
	}
}

// table prints objects with the same names: as JSON, or in columns. A column without text is left
// out.
func (a *app) table(rows []object) {
	if a.json {
		for _, o := range rows {
			a.emit(o)
		}
		return
	}
	lines := make([]string, len(rows)+1)
	for i := 0; len(rows) > 0 && i < len(rows[0]); i += 2 {
		var column member // as shown in one of the rows
		texts := []string{""}
		for _, o := range rows {
			var shown member
			for _, shown = range o[i : i+2].members(true) {
				column = shown
			}
			texts = append(texts, shown.text())
		}
		texts[0] = column.words()
		width := widest(texts...)
		if widest(texts[1:]...) == 0 {
			continue
		}
		for j, text := range texts {
			pad := strings.Repeat(" ", -width-utf8.RuneCountInString(text))
			lines[j] = joined("  ", lines[j], choose(column.isNumber(), pad+text, text+pad))
		}
	}
	for _, line := range lines {
		a.printIf(line != "", "%s\n", strings.TrimRight(line, " "))
	}
}
