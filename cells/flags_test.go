// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/cells/pending"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

// otherDefaults are the flags whose default is not the original's, and why.
var otherDefaults = map[string]string{
	"ces-rate-limits":                "has the step for larger clusters, too, that the chart sets",
	"ingress-lb-annotation-prefixes": "nobody reads it yet, and the list is its duty's",
	"unmanaged-pod-watcher-interval": "a duration, as in later releases; a plain number is read as seconds",
	"eni-gc-tags":                    "made of the cluster's name where it is not given",
}

// notFlags are options of the original's documents that no operator has.
var notFlags = map[string]string{
	"operator-manages-identities": "named in the original's code; no binary has it",
	"ces-controller-mode":         "of a later release than those that are served",
}

// original is a flag of the original.
type original struct {
	name     string
	value    string // default
	hasValue bool   // whether the table tells it
	where    string
}

// TestFlags compares the options of the operator with those of the original:
// none is missing, none is both built and pending, defaults are the same.
func TestFlags(t *testing.T) {
	originals := originalFlags(t)
	ours := map[string]*pflag.Flag{}
	root := command.New("operator", everything)
	root.InitDefaultHelpFlag()
	for _, set := range []*pflag.FlagSet{root.Flags(), root.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) { ours[f.Name] = f })
	}
	known := map[string]bool{}
	for _, o := range originals {
		known[o.name] = true
		f := ours[o.name]
		switch {
		case notFlags[o.name] != "":
		case f == nil:
			t.Errorf("--%s (%s) is missing: give it to the cell of its duty, or add it to the list in cells/pending", o.name, o.where)
		case !o.hasValue:
		case canonical(f.DefValue) != canonical(o.value) && otherDefaults[o.name] == "":
			t.Errorf("--%s defaults to %q, and in the original (%s) to %q; change it, or say why in otherDefaults", o.name, f.DefValue, o.where, o.value)
		}
	}
	owner, waiting := owners(everything), owners(pending.Cell)
	for name := range waiting {
		if owner := owner[name]; owner != "pending" {
			t.Errorf("--%s is pending, and module %s has it: take it out of the list in cells/pending", name, owner)
		}
		if !known[name] {
			t.Errorf("--%s is pending, and no option of the original", name)
		}
	}
	t.Logf("%d options of the original, %d of ours, %d of them pending", len(known), len(ours), len(waiting))
}

// owners are the options of modules, the runtime's own aside, by name.
func owners(c cell.Cell) map[string]string {
	of := map[string]string{}
	for _, m := range hive.New("test", c).Graph().Modules {
		for _, o := range m.Options {
			if m.ID != "hive" {
				of[o.Name] = m.ID
			}
		}
	}
	return of
}

// canonical makes spellings of one value the same.
func canonical(value string) string {
	value = strings.NewReplacer("[", "", "]", "", "{", "", "}", "").Replace(value)
	if d, err := time.ParseDuration(value); err == nil {
		return d.String()
	}
	if f, err := strconv.ParseFloat(value, 64); err == nil {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return value
}

var flagsOfCell = regexp.MustCompile("`(?:--)?([a-z][a-z0-9-]*)`")

// originalFlags reads the flag tables of the reference. It skips the test where
// the reference is not at hand.
func originalFlags(t *testing.T) []original {
	t.Helper()
	folder := os.Getenv("SKEP_CONTRACT_DIR")
	if folder == "" {
		// Beside the root of the repository.
		folder = filepath.Join("..", "..", "shared", "contract")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("no reference in %s; SKEP_CONTRACT_DIR names the folder that has it", folder)
	}
	var flags []original
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := tableFlags(string(text), filepath.Base(file))
		flags = append(flags, found...)
		flags = append(flags, laterFlags(string(text), filepath.Base(file))...)
	}
	if len(flags) < 200 {
		t.Fatalf("only %d flags are found in %s: the tables are not read as they are written", len(flags), folder)
	}
	return flags
}

// tableFlags are the flags of the tables whose first column is "Flag".
func tableFlags(text, file string) []original {
	var flags []original
	inside, defaultAt := false, 0
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, "/")
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		columns := strings.Split(strings.Trim(line, "|"), "|")
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		switch {
		case strings.HasPrefix(columns[0], "Flag"):
			inside, defaultAt = true, 0
			for i, c := range columns {
				if c == "Default" {
					defaultAt = i
				}
			}
		case !inside || strings.HasPrefix(columns[0], "---"):
		default:
			flags = append(flags, rowFlags(columns, defaultAt, file)...)
		}
	}
	return flags
}

func rowFlags(columns []string, defaultAt int, file string) []original {
	names := flagsOfCell.FindAllStringSubmatch(columns[0], -1)
	if file == "operator-shell.md" { // the complete table, without code marks
		names = nil
		all := shorthands.Replace(columns[0])
		for word := range strings.FieldsFuncSeq(all[:len(all)-len(parenthesis.FindString(all))], func(r rune) bool { return r == ' ' || r == ',' }) {
			for _, name := range expand(word) {
				names = append(names, []string{"", name})
			}
		}
	} else if !strings.Contains(columns[0], "--") && !strings.HasPrefix(file, "ingress") && !strings.HasPrefix(file, "gateway") {
		return nil // keys of agents that operators read
	}
	var flags []original
	for _, n := range names {
		o := original{name: n[1], where: file}
		if len(names) == 1 && defaultAt > 0 && defaultAt < len(columns) {
			o.value, o.hasValue = tableDefault(columns[defaultAt])
		}
		flags = append(flags, o)
	}
	return flags
}

// shorthands are names that the table of later releases cuts.
var shorthands = strings.NewReplacer(
	"tls-cert-file, -tls-key-file", "tls-cert-file, operator-prometheus-tls-key-file",
	"ces-write-qps-limit, -burst", "ces-write-qps-limit, ces-write-qps-burst",
	"ces-dynamic-rate-limit-{nodes,qps-limit,qps-burst}", "ces-dynamic-rate-limit-nodes ces-dynamic-rate-limit-qps-limit ces-dynamic-rate-limit-qps-burst",
	"ingress-hostnetwork-http-, -https-, -tls-passthrough-listener-port",
	"ingress-hostnetwork-http-listener-port ingress-hostnetwork-https-listener-port ingress-hostnetwork-tls-passthrough-listener-port",
	"cluster-pool-ipv4-cidr, -ipv6-cidr, -ipv4-mask-size, -ipv6-mask-size", "cluster-pool-ipv4-cidr cluster-pool-ipv6-cidr cluster-pool-ipv4-mask-size cluster-pool-ipv6-mask-size",
)

// parenthesis is a remark behind names.
var parenthesis = regexp.MustCompile(` \(.*$`)

// expand returns the names that a word with braces stands for.
func expand(word string) []string {
	b := braces.FindStringSubmatch(word)
	if b == nil {
		return []string{word}
	}
	var names []string
	for middle := range strings.SplitSeq(b[2], ",") {
		names = append(names, b[1]+middle+b[3])
	}
	return names
}

var plainDefault = regexp.MustCompile(`^[^ (,–]*$`)

// tableDefault is a default as a table tells it, if it is a value and no prose.
func tableDefault(text string) (value string, ok bool) {
	if strings.HasPrefix(text, `"`) {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", false
		}
		value, err = strconv.Unquote(quoted)
		return value, err == nil
	}
	text = strings.Trim(text, "`")
	text, _, _ = strings.Cut(text, "` (")
	if text == "empty" {
		return "", true
	}
	return strings.Trim(text, `"`), plainDefault.MatchString(text) && text != ""
}

var (
	later     = regexp.MustCompile(`(?s)\nAdded later — (.*?)\. A removed flag`)
	laterName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
	braces    = regexp.MustCompile(`^(.*)\{(.*)\}(.*)$`)
)

// laterFlags are the flags of the list of those added in later releases.
func laterFlags(text, file string) []original {
	list := later.FindStringSubmatch(text)
	if list == nil {
		return nil
	}
	all := strings.NewReplacer(
		"tls-cert-file/-key-file/-client-ca-files", "operator-prometheus-tls-cert-file operator-prometheus-tls-key-file operator-prometheus-tls-client-ca-files",
	).Replace(list[1])
	var flags []original
	for word := range strings.FieldsFuncSeq(all, func(r rune) bool { return r == ' ' || r == ';' }) {
		word = strings.Trim(word, ",.:")
		for _, name := range expand(word) {
			if laterName.MatchString(name) {
				flags = append(flags, original{name: name, where: file})
			}
		}
	}
	return flags
}
