// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/printable"
)

var (
	// Policies is the stream of CiliumNetworkPolicies.
	Policies = stream.Custom[Policy](v2.CiliumNetworkPolicyResource).OfKind("CiliumNetworkPolicy")
	// ClusterwidePolicies is the stream of CiliumClusterwideNetworkPolicies.
	ClusterwidePolicies = stream.Custom[ClusterwidePolicy](v2.CiliumClusterwideNetworkPolicyResource).OfKind("CiliumClusterwideNetworkPolicy")
)

// Policy is what duties read of a network policy. What is kept of one has a bound, whatever the policy is: a hundred of the largest have their place.
type Policy struct {
	PolicyMeta     `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           Rule    `json:"spec"`
	Specs          Rules   `json:"specs"`
	Status         *Status `json:"status"` // nil if there is none
}

// ClusterwidePolicy is a Policy without a namespace. The two are converted to each other.
type ClusterwidePolicy Policy

// Trim implements slim.Trimmer: rules are checked once it is known of which namespace they are.
func (p *Policy) Trim() {
	p.Spec.checkSubject(p.Namespace.String())
	p.Specs.check(p.Namespace.String())
}

// Trim implements slim.Trimmer.
func (p *ClusterwidePolicy) Trim() { (*Policy)(p).Trim() }

// PolicyMeta is the metadata of a network policy.
type PolicyMeta struct {
	slim.Meta
	CreationTimestamp slim.Time                `json:"creationTimestamp"`
	Labels            slim.Subset[ParentLabel] `json:"labels"`
}

// ParentLabel is the label of derived policies: the uid of the policy that they are derived from.
type ParentLabel struct{}

// ParentUIDLabel is the name of the label.
const ParentUIDLabel = "io.cilium.network.policy.parent.uuid"

// Keep implements slim.KeyFilter.
func (ParentLabel) Keep(key string) bool { return key == ParentUIDLabel }

// Status is the status of a network policy. What others write there has no bound, and what is kept of it has one.
type Status struct {
	Conditions Conditions `json:"conditions"`
	Derived    Names      `json:"derivativePolicies"`
}

// Conditions are those of a status, of which one is kept.
type Conditions struct {
	Len   int
	Valid *Condition // nil if there is none
	Place int        // of Valid
}

// Condition is a condition without its time. Of longer texts than duties write the beginning is kept.
type Condition struct {
	Status  slim.String
	Message slim.String
}

// The most bytes of a condition that are kept. A longer text is no text of ours.
const (
	maxStatus  = 100
	maxMessage = 16 << 10
)

// UnmarshalJSON implements json.Unmarshaler.
func (c *Conditions) UnmarshalJSON(raw []byte) error {
	*c = Conditions{}
	var all []struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Message string `json:"message"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &all); err != nil {
		return err
	}
	c.Len = len(all)
	for i, one := range all {
		if one.Type == string(v2.PolicyConditionValid) {
			c.Place = i
			c.Valid = &Condition{slim.MakeString(printable.Cut(one.Status, maxStatus)), slim.MakeString(printable.Cut(one.Message, maxMessage))}
			break
		}
	}
	return nil
}

// Names are the keys of a map. Of more than two, two are kept: so many say that not all are the one that there is to be. Of a long one
// the beginning is kept.
type Names []string

const (
	maxNames = 2
	maxName  = 300 // bytes, also of Secrets and namespaces; no object has more, as the name of a derived policy ends in its uid
)

// UnmarshalJSON implements json.Unmarshaler.
func (n *Names) UnmarshalJSON(raw []byte) error {
	*n = nil
	d := json.NewDecoder(bytes.NewReader(raw))
	begin, err := d.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('{') {
		return fmt.Errorf("it is no object, and begins with %.20q", raw)
	}
	var value json.RawMessage
	for d.More() && len(*n) < maxNames {
		key, err := d.Token()
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return err
		}
		name, _ := key.(string)
		*n = append(*n, printable.Cut(name, maxName))
	}
	return nil
}

// HasGroups reports whether a rule refers to groups of a cloud. unknown says that some of the rules cannot be decoded.
func (p *Policy) HasGroups() (has, unknown bool) {
	return len(p.Spec.groups)+len(p.Specs.groups) > 0, p.Spec.undecoded || p.Specs.undecoded
}

// IsRefused reports whether a rule cannot be decoded, or all have too many entries together (VALID-25): what they refer to may be known, and nothing else.
func (p *Policy) IsRefused() bool {
	return p.Spec.isRefused || p.Specs.isRefused || p.Entries() > maxEntries
}

// Entries is how many objects and nulls the JSON of the rules has, or more: each is some hundred bytes in memory where it is decoded.
func (p *Policy) Entries() int { return p.Spec.entries + p.Specs.entries }

// Groups are the groups that rules refer to, each once; those of rules that cannot be decoded are not among them. Of more than
// MaxGroups there is one more than that. Those beyond a size together have their ids alone.
func (p *Policy) Groups() []Group { return addGroups(slices.Clone(p.Spec.groups), p.Specs.groups...) }

// Secrets are those that rules refer to, the first MaxSecrets of spec and of specs, and how many others there are. unknown says that some of the rules cannot
// be decoded.
func (p *Policy) Secrets() (first []slim.Key, beyond int, unknown bool) {
	return slices.Concat(p.Spec.secrets.first, p.Specs.secrets.first), p.Spec.secrets.beyond + p.Specs.secrets.beyond, p.Spec.undecoded || p.Specs.undecoded
}

// Digest is one of the rules. It is compared with others of the same process alone.
func (p *Policy) Digest() [2]uint64 { return [2]uint64{p.Spec.digest, p.Specs.digest} }

// Conditions are those of the status, if there is one.
func (p *Policy) Conditions() Conditions {
	if p.Status == nil {
		return Conditions{}
	}
	return p.Status.Conditions
}

// Derived are names of derived policies in the status, all if there are no more than two.
func (p *Policy) Derived() []string {
	if p.Status == nil {
		return nil
	}
	return p.Status.Derived
}
