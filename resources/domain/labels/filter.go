// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Entry is one entry of a filter: it includes or excludes labels by key.
type Entry struct {
	source  string // "" matches any
	exclude bool
	expr    *regexp.Regexp // nil: prefix is used
	prefix  string
	text    string // as written
}

// ParseEntry parses an entry in the syntax of the option: [source:][!]regex.
func ParseEntry(text string) (Entry, error) {
	e := Entry{text: text}
	pattern := text
	if source, rest, ok := strings.Cut(text, ":"); ok {
		e.source, pattern = source, rest
	}
	pattern, e.exclude = strings.CutPrefix(pattern, "!")
	if pattern == "" && !e.exclude {
		return Entry{}, fmt.Errorf("%q includes nothing: it has no regular expression", text)
	}
	var err error
	if e.expr, err = regexp.Compile(pattern); err != nil {
		return Entry{}, fmt.Errorf("%q: %w", text, err)
	}
	return e, nil
}

// ParseEntries parses all entries and returns all errors.
func ParseEntries(texts []string) ([]Entry, error) {
	entries := make([]Entry, len(texts))
	errs := make([]error, len(texts))
	for i, text := range texts {
		entries[i], errs[i] = ParseEntry(text)
	}
	return entries, errors.Join(errs...)
}

// String returns the entry as it was written.
func (e Entry) String() string { return e.text }

// match returns the length of the entry's match at the start of the key.
func (e Entry) match(source, key string) (length int, ok bool) {
	if e.source != "" && e.source != source {
		return 0, false
	}
	if e.expr == nil {
		return len(e.prefix), strings.HasPrefix(key, e.prefix)
	}
	at := e.expr.FindStringIndex(key) // the leftmost match must be at the start
	if at == nil || at[0] != 0 {
		return 0, false
	}
	return at[1], true
}

// Filter decides which labels are part of identities. It is safe for concurrent
// use.
type Filter struct {
	entries  []Entry
	allow    bool // labels that are not included are dropped
	warnings []string
}

// NewFilter returns a filter of a default list followed by the entries of the user.
func NewFilter(d DefaultList, user []Entry) *Filter { return newFilter(d.entries(), user, user) }

// NewFileFilter returns a filter of the entries of a file, which replace the default
// list, followed by those of the user.
func NewFileFilter(file, user []Entry) *Filter {
	return newFilter(file, user, slices.Concat(file, user))
}

// newFilter returns a filter of base and user. given are those that people wrote.
func newFilter(base, user, given []Entry) *Filter {
	f := &Filter{entries: slices.Concat(base, user)}
	for _, e := range given {
		f.allow = f.allow || !e.exclude
	}
	f.warnings = warnings(f.entries, user)
	return f
}

// reserved is an entry that agents require.
const reserved = "reserved:.*"

func warnings(all, user []Entry) (texts []string) {
	found := false
	for _, e := range all {
		found = found || e.text == reserved
	}
	if !found {
		texts = append(texts, fmt.Sprintf("the list has no entry %q, which agents ask for", reserved))
	}
	for _, e := range user {
		if source, ok := strings.CutPrefix(e.source, "!"); ok {
			texts = append(texts, fmt.Sprintf("%q excludes nothing: it includes labels of a source %q, which there is not, and drops all that no other entry includes; to exclude, write %q",
				e.text, e.source, source+":!"+strings.TrimPrefix(e.text, e.source+":")))
		}
	}
	return texts
}

// Warnings returns warnings about entries that are valid but probably not intended.
func (f *Filter) Warnings() []string { return f.warnings }

// Keeps reports whether a label with this key is part of identities, whatever its value.
func (f *Filter) Keeps(source, key string) bool {
	included, ignored := 0, 0
	for _, e := range f.entries {
		length, ok := e.match(source, key)
		switch {
		case !ok:
		case !e.exclude:
			included = max(included, length)
		case ignored == 0 || length < ignored:
			ignored = length // 0 cancels what was ignored so far
		}
	}
	return !f.allow && ignored == 0 || included > ignored
}

// DefaultList says what the default list of agents has beside what that of all releases
// has.
type DefaultList struct {
	ServiceAccount bool // includes the service account, so that an allow list keeps it
	NoTopology     bool // excludes labels that the API server copies from nodes
}

func (d DefaultList) entries() []Entry {
	list := slices.Clone(included)
	if d.ServiceAccount {
		list = append(list, serviceAccount...)
	}
	list = append(list, excluded...)
	if d.NoTopology {
		list = append(list, topology...)
	}
	return list
}

var included = mustParse(
	reserved,
	`:io\.kubernetes\.pod\.namespace`,
	`:io\.cilium\.k8s\.namespace\.labels`,
	`:app\.kubernetes\.io`,
	`:io\.cilium\.k8s\.policy\.cluster`,
)

var serviceAccount = mustParse(`:io\.cilium\.k8s\.policy\.serviceaccount`)

var topology = mustParse(`:!topology\.kubernetes\.io`)

var excluded = mustParse(
	`:!io\.kubernetes`,
	`:!kubernetes\.io`,
	`:!statefulset\.kubernetes\.io/pod-name`,
	`:!apps\.kubernetes\.io/pod-index`,
	`:!batch\.kubernetes\.io/job-completion-index`,
	`:!batch\.kubernetes\.io/controller-uid`,
	`:!.*beta\.kubernetes\.io`,
	`:!k8s\.io`,
	`:!pod-template-generation`,
	`:!pod-template-hash`,
	`:!controller-revision-hash`,
	`:!controller-uid`,
	`:!annotation.*`,
	`:!etcd_node`,
)

func mustParse(texts ...string) []Entry {
	entries, err := ParseEntries(texts)
	if err != nil {
		panic(err) // constants
	}
	return entries
}
