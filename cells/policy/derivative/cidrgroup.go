// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	generatedName   = "auto-cilium-external-group-"
	groupAnnotation = "cilium.io/external-group"
	ownLabel        = "cilium.io/external-group-controller"
	idPrefix        = "extgrp.cilium.io/"
	partOfLabel     = "app.kubernetes.io/part-of"
	partOf          = "cilium"
)

// cidrGroups are the CiliumCIDRGroups of groups of clouds. Those of users are not read.
var cidrGroups = stream.Custom[cidrGroup](v2.CiliumCIDRGroupResource).OfKind("CiliumCIDRGroup").MatchingLabels(ownLabel)

// cidrGroup is a CiliumCIDRGroup of a group.
type cidrGroup struct {
	cidrGroupMeta  `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           cidrGroupSpec `json:"spec"`
}

type cidrGroupMeta struct {
	slim.Meta
	Labels            slim.Labels               `json:"labels"`
	Annotations       slim.Subset[groupOfCIDRs] `json:"annotations"`
	CreationTimestamp slim.Time                 `json:"creationTimestamp"`
}

type cidrGroupSpec struct {
	ExternalCIDRs []string `json:"externalCIDRs"`
}

// groupOfCIDRs is the annotation with the group.
type groupOfCIDRs struct{}

// Keep implements slim.KeyFilter.
func (groupOfCIDRs) Keep(key string) bool { return key == groupAnnotation }

// byID finds CIDR groups by the ids in their labels.
var byID = stream.NewIndex("id", func(g *cidrGroup, add func(string)) {
	for _, id := range g.ids() {
		add(id)
	}
})

// ids are the groups whose addresses agents take from it.
func (g *cidrGroup) ids() (all []string) {
	for key := range g.Labels.All() {
		if id, is := strings.CutPrefix(key, idPrefix); is {
			all = append(all, id)
		}
	}
	return all
}

// oldestFirst orders the CIDR groups of one id: the first one stays.
func oldestFirst(a, b *cidrGroup) int {
	return cmp.Or(cmp.Compare(a.CreationTimestamp, b.CreationTimestamp), strings.Compare(a.Name, b.Name))
}

// maxGroupText is the most bytes of a group that fit into the annotation.
const maxGroupText = 200 << 10

// isServable reports whether a group can have a CIDR group: its id begins the name of a label's key, which agents compute from the
// group, and 1 in 32 begins with a character that none does.
func isServable(g networkpolicy.Group) bool {
	return !g.IsLarge() && strings.IndexAny(g.ID(), "-_") != 0 && len(g) <= maxGroupText
}

// cidrsOf are the prefixes of the addresses of a group.
func cidrsOf(addresses []netip.Addr) []string {
	cidrs := []string{} // present where there are none
	for _, p := range prefixesOf(addresses) {
		cidrs = append(cidrs, p.String())
	}
	return cidrs
}

// isAsWanted reports whether a CIDR group has all that is written of it.
func (g *cidrGroup) isAsWanted(group networkpolicy.Group, cidrs []string) bool {
	id := group.ID()
	value, labelled := g.Labels.Lookup(idPrefix + id)
	return labelled && value == "" && slices.Equal(g.ids(), []string{id}) && g.Labels.Get(partOfLabel) == partOf && g.Labels.Get(ownLabel) == "" &&
		g.Annotations.Get(groupAnnotation) == string(group) && slices.Equal(g.Spec.ExternalCIDRs, cidrs) && g.DecodeError() == nil
}

// setCIDRGroup makes a CIDR group that of a group. Other labels and annotations stay.
func setCIDRGroup(u *unstructured.Unstructured, group networkpolicy.Group, cidrs []string) {
	labels := u.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, idPrefix) })
	if labels == nil {
		labels = map[string]string{}
	}
	labels[partOfLabel], labels[ownLabel], labels[idPrefix+group.ID()] = partOf, "", ""
	u.SetLabels(labels)
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[groupAnnotation] = string(group)
	u.SetAnnotations(annotations)
	list := make([]any, len(cidrs))
	for i, c := range cidrs {
		list[i] = c
	}
	u.Object["spec"] = map[string]any{"externalCIDRs": list}
}

// newCIDRGroup is the CIDR group of a group, whose name the API server draws.
func newCIDRGroup(group networkpolicy.Group, cidrs []string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v2.SchemeGroupVersion.WithKind("CiliumCIDRGroup"))
	u.SetGenerateName(generatedName)
	setCIDRGroup(u, group, cidrs)
	return u
}

// partsOf are the parts of a group, as those of a rule.
func partsOf(g networkpolicy.Group) []group {
	var content any
	if err := json.Unmarshal([]byte(g), &content); err != nil {
		return nil // it was encoded here
	}
	return parseGroup(content)
}
