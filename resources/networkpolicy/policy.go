// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/policy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var (
	// Policies is the stream of CiliumNetworkPolicies.
	Policies = stream.Custom[Policy](v2.CiliumNetworkPolicyResource).OfKind("CiliumNetworkPolicy")
	// ClusterwidePolicies is the stream of CiliumClusterwideNetworkPolicies.
	ClusterwidePolicies = stream.Custom[ClusterwidePolicy](v2.CiliumClusterwideNetworkPolicyResource).OfKind("CiliumClusterwideNetworkPolicy")
)

// Policy is what duties read of a network policy.
type Policy struct {
	PolicyMeta     `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           Rule    `json:"spec"`
	Specs          Rules   `json:"specs"`
	Status         *Status `json:"status"` // nil if there is none
}

// ClusterwidePolicy is a Policy without a namespace. The two are converted to each other.
type ClusterwidePolicy Policy

// PolicyMeta is the metadata of a network policy.
type PolicyMeta struct {
	slim.Meta
	Labels slim.Subset[ParentLabel] `json:"labels"`
}

// ParentLabel is the label of derived policies: the uid of the policy that they are derived from.
type ParentLabel struct{}

// ParentUIDLabel is the name of the label.
const ParentUIDLabel = "io.cilium.network.policy.parent.uuid"

// Keep implements slim.KeyFilter.
func (ParentLabel) Keep(key string) bool { return key == ParentUIDLabel }

// Status is the status of a network policy.
type Status struct {
	Conditions []Condition `json:"conditions"`
	Derived    Names       `json:"derivativePolicies"`
}

// Condition is a condition without its time.
type Condition struct {
	Type    slim.String `json:"type"`
	Status  slim.String `json:"status"`
	Message slim.String `json:"message"`
}

// Problems are what is wrong with the rules of a policy for agents of a release, the first finding of each, in the order of the rules.
func (p *Policy) Problems(on policy.Features, r release.Release) (texts []string) {
	for _, f := range append([]ruleFindings{{p.Spec.findings, p.Spec.subject}}, p.Specs.findings...) {
		text := f.findings.of(r).First(on)
		if of := f.subject.problem(p.Namespace.String()); of != "" {
			text = of
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// HasGroups reports whether a rule refers to groups of a cloud. unknown says that some of the rules cannot be decoded.
func (p *Policy) HasGroups() (has, unknown bool) {
	return len(p.Spec.groups)+len(p.Specs.groups) > 0, p.Spec.undecoded || p.Specs.undecoded
}

// Groups are the groups that rules refer to, each once; those of rules that cannot be decoded are not among them. Of more than
// MaxGroups there is one more than that.
func (p *Policy) Groups() []Group { return addGroups(slices.Clone(p.Spec.groups), p.Specs.groups...) }

// Secrets are those that rules refer to. unknown says that some of the rules cannot be decoded.
func (p *Policy) Secrets() (all []slim.Key, unknown bool) {
	return slices.Concat(p.Spec.secrets, p.Specs.secrets), p.Spec.undecoded || p.Specs.undecoded
}

// Digest is one of the rules. It is compared with others of the same process alone.
func (p *Policy) Digest() [2]uint64 { return [2]uint64{p.Spec.digest, p.Specs.digest} }

// Conditions are those of the status, if there is one.
func (p *Policy) Conditions() []Condition {
	if p.Status == nil {
		return nil
	}
	return p.Status.Conditions
}

// Derived are the names of derived policies in the status.
func (p *Policy) Derived() []string {
	if p.Status == nil {
		return nil
	}
	return p.Status.Derived
}
