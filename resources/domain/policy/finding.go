// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"slices"

	"github.com/skep-operator/skep/runtime/printable"
)

// Feature is an option of agents without which some rules are not valid.
type Feature uint8

// The features. Always is none: a finding that holds whatever the options are.
const (
	Always Feature = iota
	L7Proxy
	ICMPRules
	NodeSelectors
	EmptyPorts // ports without a number
	Authentication
)

// Features are the features that agents have, a bit each.
type Features uint8

// With returns the features and one more.
func (f Features) With(one Feature) Features { return f | 1<<one }

// Has reports whether agents have a feature. None has Always.
func (f Features) Has(one Feature) bool { return one != Always && f&(1<<one) != 0 }

// HasAll reports whether agents have all of these features. None has Always.
func (f Features) HasAll(these Features) bool { return these&^f == 0 && these&(1<<Always) == 0 }

// Finding is what is wrong with a rule where agents lack a feature.
type Finding struct {
	Without Feature
	Text    string // of no more than MaxText bytes
}

// MaxText is the most bytes of a finding that are kept: it has the value that it is about, which may be a megabyte.
const MaxText = 1 << 10

// NewFinding returns a finding of which the beginning of a text is kept.
func NewFinding(without Feature, text string) Finding {
	return Finding{without, printable.Cut(text, MaxText)}
}

// Findings are those of one rule in their order: at most one for each feature, and at last one that always holds. A valid
// rule has none. They do not depend on the options, so that they can be kept in place of the rule.
type Findings []Finding

// First is the first finding that holds with the features of the agents, "" if there is none. That of authentication, which is checked
// apart from all others, is a line of its own.
func (f Findings) First(on Features) string {
	first, apart := "", ""
	for _, one := range f {
		switch {
		case on.Has(one.Without):
		case one.Without == Authentication:
			apart = one.Text
		case first == "":
			first = one.Text
		}
	}
	if first != "" && apart != "" {
		return first + "\n" + apart
	}
	return first + apart
}

// Without are the features without which there is a finding; Always is among them if one holds in any case.
func (f Findings) Without() (all Features) {
	for _, one := range f {
		all = all.With(one.Without)
	}
	return all
}

// done reports whether a finding holds always: the rest of the rule is not checked.
func (f Findings) done() bool { return len(f) > 0 && f[len(f)-1].Without == Always }

// add adds a finding. Of findings of one feature the first counts.
func (f *Findings) add(without Feature, text string) {
	if f.done() || slices.ContainsFunc(*f, func(one Finding) bool { return one.Without == without }) {
		return
	}
	*f = append(*f, NewFinding(without, text))
}

// addText adds a finding that always holds, if the text is not empty.
func (f *Findings) addText(text string) {
	if text != "" {
		f.add(Always, text)
	}
}
