// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"bytes"
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
	findings policy.Findings
	checked
}

// Rules are a list of rules.
type Rules struct {
	findings []policy.Findings // of rules that have any
	checked
}

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
		r.findings = policy.Findings{undecodable("the rule", err)}
		r.undecoded = true
		return nil
	}
	r.findings, r.groups, r.secrets = policy.Check(&rule), groupsOf(&rule), secretsOf(&rule)
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
		r.findings = []policy.Findings{{undecodable("the list of rules", err)}}
		r.undecoded = true
		return nil
	}
	for _, one := range all {
		var rule Rule
		_ = rule.UnmarshalJSON(one) // it returns none
		if len(rule.findings) > 0 {
			r.findings = append(r.findings, rule.findings)
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
