// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/printable"
)

// Rule is what is known of a rule that was checked. Decoding one never fails: what cannot be decoded is a finding.
type Rule struct {
	findings findings
	subject  // of a policy of a namespace, until the rule is checked
	checked
}

// Rules are a list of rules. They are checked when the policy is trimmed.
type Rules struct {
	raw []byte // until then
	problems
	checked
}

// subject is what a rule says of what it is for that no policy of a namespace may say.
type subject struct {
	nodes     bool
	namespace string // of the pods, as the selector of endpoints has it; "" if it has none
}

// The keys of a namespace in selectors.
var namespaceKeys = []string{"k8s:io.kubernetes.pod.namespace", "any:io.kubernetes.pod.namespace", "io.kubernetes.pod.namespace"}

func subjectOf(r *v2.Rule) (s subject) {
	s.nodes = r.NodeSelector != nil
	if r.EndpointSelector != nil {
		for _, key := range namespaceKeys {
			s.namespace = cmp.Or(s.namespace, printable.Cut(r.EndpointSelector.MatchLabels[key], maxName))
		}
	}
	return s
}

// problem is what is wrong with it in a policy of a namespace, "" for none.
func (s subject) problem(namespace string) string {
	switch {
	case namespace == "":
		return ""
	case s.nodes:
		return textNodeSelector
	case s.namespace != "" && s.namespace != namespace:
		return fmt.Sprintf("EndpointSelector is for the namespace %s, and the rule is applied to pods of the policy's own", s.namespace)
	}
	return ""
}

const textNodeSelector = "rule cannot have NodeSelector"

type checked struct {
	digest    uint64
	groups    []Group
	undecoded bool // what it refers to is not known
	isRefused bool // it cannot be decoded, or has too many entries; what it refers to may be known
	entries   int  // in its JSON, or more
	secrets   secrets
}

var digestSeed = maphash.MakeSeed()

var null = []byte("null")

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rule) UnmarshalJSON(raw []byte) error {
	r.decode(raw, knownSecrets{})
	return nil
}

// decode decodes and checks a rule. Secrets that are known are left out.
func (r *Rule) decode(raw []byte, known knownSecrets) {
	*r = Rule{}
	if raw = bytes.TrimSpace(raw); bytes.Equal(raw, null) {
		return
	}
	r.digest = maphash.Bytes(digestSeed, raw)
	rule, err := DecodeRule(raw)
	var to references // apart: what a rule that cannot be decoded refers to is known, too, and keeps nothing of others waiting
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &to) != nil {
		r.undecoded = true
	}
	r.groups, r.secrets, r.entries = to.groups(), to.secrets(known), slim.Entries(raw)
	if r.isRefused = err != nil; r.isRefused {
		r.findings = undecodable("the rule", err)
		return
	}
	r.findings, r.subject = findingsOf(rule), subjectOf(rule)
}

// maxEntries is how many entries the JSON of a rule may have: one is 300 bytes in memory, and three in a text of 1.5 MB. It has place for all CIDRs that fit in
// an object.
const maxEntries = 90_000

// DecodeRule decodes the JSON of a rule. One with too many entries is not decoded.
func DecodeRule(raw []byte) (*v2.Rule, error) {
	if n := slim.Entries(raw); n > maxEntries {
		return nil, fmt.Errorf("it has more than %d entries: %d", maxEntries, n)
	}
	rule := &v2.Rule{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, rule); err != nil {
		return nil, err
	}
	return rule, nil
}

// checkSubject makes a finding of what the rule is for, if it is one of a policy of this namespace.
func (r *Rule) checkSubject(namespace string) {
	if text := r.subject.problem(namespace); text != "" {
		r.findings = inAll(text)
	}
	r.subject = subject{}
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rules) UnmarshalJSON(raw []byte) error {
	*r = Rules{}
	if raw = bytes.TrimSpace(raw); bytes.Equal(raw, null) {
		return nil
	}
	r.digest = maphash.Bytes(digestSeed, raw)
	r.raw = bytes.Clone(raw)
	return nil
}

// check checks the rules of a policy of a namespace, which are not kept.
func (r *Rules) check(namespace string) {
	raw := r.raw
	if r.raw = nil; raw == nil {
		return
	}
	r.entries = slim.Entries(raw)
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		r.kept = []findings{undecodable("the list of rules", err)}
		r.undecoded = true
		return
	}
	found, known := newCollector(), knownSecrets{}
	for _, one := range all {
		var rule Rule
		rule.decode(one, known)
		rule.checkSubject(namespace)
		found.add(rule.findings)
		r.groups = addGroups(r.groups, rule.groups...)
		r.undecoded, r.isRefused = r.undecoded || rule.undecoded, r.isRefused || rule.isRefused
		r.secrets.beyond += rule.secrets.beyond
		for _, key := range rule.secrets.first {
			r.secrets.add(key)
		}
	}
	r.problems = found.problems
}

func undecodable(what string, err error) findings {
	return inAll(fmt.Sprintf("cannot decode %s: %v", what, err))
}

// MaxSecrets is the most Secrets of a list of rules that are kept: no more are copied.
const MaxSecrets = 1000

// secrets are those that rules refer to.
type secrets struct {
	first  []slim.Key
	beyond int // how many others there are
}

type knownSecrets map[slim.Key]bool

func (s *secrets) add(key slim.Key) {
	if len(s.first) < MaxSecrets {
		s.first = append(s.first, key)
	} else {
		s.beyond++
	}
}
