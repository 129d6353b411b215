// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"slices"
	"strings"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// Dialect is what the agents of a release check.
type Dialect struct {
	// Later has the order and texts of 1.18 and later, and what they allow.
	Later bool
	// Protocols are those of ports, as a finding names them: tcp | udp.
	Protocols string
	// EmptyPorts has ports that can be empty where an option says so, and the checks of names that came with them.
	EmptyPorts bool
	// Within has exceptions of CIDRs that are no larger than those.
	Within bool
	// Messages are the protocols whose messages have rules, but for HTTP and DNS. Others are fields that are not known.
	Messages bool
	// Requires has the lists of requirements.
	Requires bool
	// Authentication has rules with authentication checked.
	Authentication bool
}

// protocols are those of a dialect, in upper case.
func (d *Dialect) has(protocol string) bool {
	return slices.Contains(strings.Split(strings.ToUpper(d.Protocols), " | "), protocol)
}

// text is the form of a text that begins in lower case from 1.18 on.
func (d *Dialect) text(t string) string {
	if d.Later {
		return strings.ToLower(t[:1]) + t[1:]
	}
	return t
}

// Checker checks one rule for several releases: what they have in common, and costs, is checked once. It is not safe for concurrent use.
type Checker struct {
	rule *v2.Rule
	http map[*v2.HTTPRule]string      // by the first rule of a list
	bad  map[*v2.LabelSelector]string // what is wrong with selectors that are not valid
}

// NewChecker returns a checker of a rule, which it does not change.
func NewChecker(r *v2.Rule) *Checker {
	return &Checker{r, map[*v2.HTTPRule]string{}, map[*v2.LabelSelector]string{}}
}

// checkHTTP is the finding of a list of rules for HTTP.
func (c *Checker) checkHTTP(rules []v2.HTTPRule) string {
	if len(rules) == 0 {
		return ""
	}
	text, known := c.http[&rules[0]]
	if !known {
		for _, rule := range rules {
			if text = checkHTTP(rule); text != "" {
				break
			}
		}
		c.http[&rules[0]] = text
	}
	return text
}
