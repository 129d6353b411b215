// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"bytes"
	"encoding/json"
	"fmt"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/printable"
)

// references are what the entries of a rule refer to. They are decoded from rules with any number of entries: elements that refer to nothing are not kept.
type references struct {
	Ingress     list[entry] `json:"ingress"`
	IngressDeny list[entry] `json:"ingressDeny"`
	Egress      list[entry] `json:"egress"`
	EgressDeny  list[entry] `json:"egressDeny"`
}

// entry is what an entry of ingress or egress refers to.
type entry struct {
	FromGroups list[group] `json:"fromGroups"`
	ToGroups   list[group] `json:"toGroups"`
	ToPorts    list[port]  `json:"toPorts"`
}

func (e entry) isEmpty() bool { return len(e.FromGroups)+len(e.ToGroups)+len(e.ToPorts) == 0 }

type group v2.PolicyGroup

func (group) isEmpty() bool { return false } // it has an id, as others

// port is what an element of toPorts refers to.
type port struct {
	TerminatingTLS secret `json:"terminatingTLS"`
	OriginatingTLS secret `json:"originatingTLS"`
	Rules          struct {
		HTTP list[request] `json:"http"`
	} `json:"rules"`
}

func (p port) isEmpty() bool {
	return p.TerminatingTLS.isEmpty() && p.OriginatingTLS.isEmpty() && len(p.Rules.HTTP) == 0
}

// request is what a rule for requests refers to.
type request struct {
	HeaderMatches list[secret] `json:"headerMatches"`
}

func (r request) isEmpty() bool { return len(r.HeaderMatches) == 0 }

// secret is an object with a reference to a Secret.
type secret struct {
	Secret v2.SecretReference `json:"secret"`
}

func (s secret) isEmpty() bool { return s.Secret.Namespace == "" || s.Secret.Name == "" }

// list is a list without its empty elements.
type list[T interface{ isEmpty() bool }] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(raw []byte) error {
	*l = nil
	d := json.NewDecoder(bytes.NewReader(raw))
	begin, err := d.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('[') {
		return fmt.Errorf("it is no list, and begins with %.20q", raw)
	}
	var text json.RawMessage // which is used again: there may be hundreds of thousands
	for d.More() {
		if err := d.Decode(&text); err != nil {
			return err
		}
		var one T
		if len(text) > len("null") { // {} is shorter
			if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &one); err != nil {
				return err
			}
		}
		if !one.isEmpty() {
			*l = append(*l, one)
		}
	}
	return nil
}

// groups are the groups of a cloud that the entries refer to, each once.
func (r *references) groups() (all []Group) {
	add := func(groups []group) {
		for i := range groups {
			all = addGroups(all, newGroup((*v2.PolicyGroup)(&groups[i])))
		}
	}
	for _, e := range r.Ingress {
		add(e.FromGroups)
	}
	for _, e := range r.IngressDeny {
		add(e.FromGroups)
	}
	for _, e := range r.Egress {
		add(e.ToGroups)
	}
	for _, e := range r.EgressDeny {
		add(e.ToGroups)
	}
	return all
}

// secrets are the Secrets that the entries refer to, but for those that are known. A reference without a namespace or a name is to none.
func (r *references) secrets(known knownSecrets) (found secrets) {
	add := func(s secret) {
		key := slim.Key{Namespace: printable.Cut(s.Secret.Namespace, maxName), Name: printable.Cut(s.Secret.Name, maxName)}
		if !s.isEmpty() && !known[key] {
			known[key] = true
			found.add(key)
		}
	}
	addEntries := func(entries []entry) {
		for _, e := range entries {
			for _, p := range e.ToPorts {
				add(p.TerminatingTLS)
				add(p.OriginatingTLS)
				for _, http := range p.Rules.HTTP {
					for _, header := range http.HeaderMatches {
						add(header)
					}
				}
			}
		}
	}
	addEntries(r.Ingress)
	addEntries(r.Egress)
	return found
}
