// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/policy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Rule is what is known of a rule that was checked. Decoding one never fails: what cannot be decoded is a finding.
type Rule struct {
	findings findings
	subject  // of a policy of a namespace
	checked
}

// Rules are a list of rules.
type Rules struct {
	findings []ruleFindings // of rules that have any
	checked
}

// ruleFindings are those of one rule, and what depends on the namespace of its policy.
type ruleFindings struct {
	findings findings
	subject  subject
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
			s.namespace = cmp.Or(s.namespace, r.EndpointSelector.MatchLabels[key])
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
	undecoded bool
	secrets   []slim.Key
}

var digestSeed = maphash.MakeSeed()

var null = []byte("null")

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rule) UnmarshalJSON(raw []byte) error {
	*r = Rule{}
	if raw = bytes.TrimSpace(raw); bytes.Equal(raw, null) {
		return nil
	}
	r.digest = maphash.Bytes(digestSeed, raw)
	var rule v2.Rule
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &rule); err != nil {
		r.findings = undecodableIn(undecodable("the rule", err))
		r.undecoded = true
		return nil
	}
	r.findings, r.groups, r.secrets = findingsOf(&rule), groupsOf(&rule), secretsOf(&rule)
	r.subject = subjectOf(&rule)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rules) UnmarshalJSON(raw []byte) error {
	*r = Rules{}
	if raw = bytes.TrimSpace(raw); bytes.Equal(raw, null) {
		return nil
	}
	r.digest = maphash.Bytes(digestSeed, raw)
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		r.findings = []ruleFindings{{findings: undecodableIn(undecodable("the list of rules", err))}}
		r.undecoded = true
		return nil
	}
	for _, one := range all {
		var rule Rule
		_ = rule.UnmarshalJSON(one) // it returns none
		if f := (ruleFindings{rule.findings, rule.subject}); len(f.findings) > 0 || f.subject != (subject{}) {
			r.findings = append(r.findings, f)
		}
		r.groups = addGroups(r.groups, rule.groups...)
		r.undecoded = r.undecoded || rule.undecoded
		r.secrets = append(r.secrets, rule.secrets...)
	}
	return nil
}

func undecodable(what string, err error) policy.Finding {
	return policy.Finding{Text: fmt.Sprintf("cannot decode %s: %v", what, err)}
}

// secretsOf are the Secrets that a rule refers to. A reference without a namespace or a name is to none.
func secretsOf(r *v2.Rule) (found []slim.Key) {
	known := map[slim.Key]bool{}
	add := func(s v2.SecretReference) {
		if key := (slim.Key{Namespace: s.Namespace, Name: s.Name}); s.Namespace != "" && s.Name != "" && !known[key] {
			known[key] = true
			found = append(found, key)
		}
	}
	addPorts := func(ports []v2.PortRule) {
		for _, port := range ports {
			for _, tls := range []*v2.TLSContext{port.TerminatingTLS, port.OriginatingTLS} {
				if tls != nil {
					add(tls.Secret)
				}
			}
			if port.Rules == nil {
				continue
			}
			for _, http := range port.Rules.HTTP {
				for _, header := range http.HeaderMatches {
					if header.Secret != nil {
						add(*header.Secret)
					}
				}
			}
		}
	}
	for _, entry := range r.Ingress {
		addPorts(entry.ToPorts)
	}
	for _, entry := range r.Egress {
		addPorts(entry.ToPorts)
	}
	return found
}

// Names are the keys of a map, sorted.
type Names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *Names) UnmarshalJSON(raw []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	*n = slices.Sorted(maps.Keys(all))
	return nil
}
