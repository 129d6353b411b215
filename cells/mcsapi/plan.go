// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// madeHere is an annotation of ServiceImports: those that this duty made have it. With the value ofUser it says that a ServiceImport is a
// user's, whatever signs of originals it has.
const (
	madeHere = "skep.dev/imported-from-exports"
	ofUser   = "false"
)

// supportedFamilies is an annotation that originals give to their ServiceImports, from 1.19 on.
const supportedFamilies = "clustermesh.cilium.io/supported-ip-families"

// state is what is known of the service of a name in all clusters. What does not exist is nil.
type state struct {
	key      slim.Key
	cluster  string            // this one
	release  release.Release   // of its agents
	families []corev1.IPFamily // that pods of this cluster have
	rules    rules
	isLocal  bool // the Namespace is not global
	isStale  bool // this cluster's objects may be older than what an earlier leader has seen
	export   *serviceExport
	service  *service
	imported *serviceImport
	derived  *service // the Service with the name of the derived one

	published *clustermesh.ServiceExport // by this cluster
	remote    []*clustermesh.ServiceExport
	leftOut   bool     // some of other clusters are not among remote
	unknown   []string // clusters that may publish it or not, this one among them
	denied    bool     // something is not written, as the role does not allow it

	local     localSlices
	noCopies  bool // the role does not allow to copy EndpointSlices
	isEmptied bool // Kubernetes has no endpoints for the derived Service any more, which is to lose its selector

	occupied []string      // names of copies that other EndpointSlices have
	again    time.Duration // until they are tried again, 0 if there are none
}

// verb is what to do with an object.
type verb int

const (
	keep verb = iota
	create
	update
	remove
	recreate
)

// importPlan is what to do with a ServiceImport.
type importPlan struct {
	verb verb
	// spec is the one that it has then, nil if there is none. Addresses are not part of it.
	spec   *mcsv1alpha1.ServiceImportSpec
	merged merged
	// follows says that it is that of the exports, with their labels and annotations; isLeft, that an original has made it.
	follows, isLeft bool
}

// planImport decides about the ServiceImport. One that this duty or an original made follows the exports: it is deleted when none exports it and
// all clusters are known that it is made of, and its spec stays as it is while one of them is not. A cluster that it is not made of holds nothing.
func (s *state) planImport() importPlan {
	all := s.remote
	if s.published != nil {
		all = append(slices.Clone(all), s.published)
	}
	p := importPlan{merged: s.rules.merge(all), isLeft: s.isLeft()}
	switch has := s.imported; {
	case has == nil && len(all) == 0:
	case has == nil:
		p.verb, p.spec, p.follows = create, &p.merged.spec, true
	case !has.DeletionTimestamp.IsZero():
	case !s.followsExports():
		p.spec = &has.Spec
	case len(all) == 0 && !s.isHeld() && !s.mayBeExported():
		p.verb = remove
	case len(all) == 0, s.isHeld() && !s.decides():
		p.spec = &has.Spec
	case s.isHeld():
		p.spec, p.follows = s.withHeld(p.merged.spec), true
	default:
		p.spec, p.follows = &p.merged.spec, true
	}
	return p
}

// followsExports reports whether the ServiceImport is what clusters export, and no user's.
func (s *state) followsExports() bool {
	value, says := s.imported.Annotations.Lookup(madeHere)
	return says && value != ofUser || s.isLeft()
}

// isLeft reports whether an original has made the ServiceImport, by its signs. The name of a derived Service alone is none if that is not
// the original's: then the ServiceImport was made by a user, and served by this duty or by an original of 1.17.
func (s *state) isLeft() bool {
	if s.imported == nil || s.imported.Annotations.Has(madeHere) || !release.ImportsFollowExports.In(s.release) {
		return false
	}
	isNamed := s.imported.Annotations.Has(derivedAnnotation) && (s.derived == nil || !s.isOwned() || s.isOriginals())
	return isNamed || s.imported.Annotations.Has(supportedFamilies)
}

// isHeld reports whether a cluster that the ServiceImport is made of is not known.
func (s *state) isHeld() bool {
	of := s.imported.Status.Clusters
	if len(of) == 0 {
		return len(s.unknown) > 0 // it was not written yet
	}
	return slices.ContainsFunc(of, func(c mcsv1alpha1.ClusterStatus) bool { return slices.Contains(s.unknown, c.Cluster) })
}

// decides reports whether the export of this cluster counts whatever others say, and so while one of them is not known.
func (s *state) decides() bool { return s.published != nil && !s.rules.oldestDecides }

// withHeld is a spec with the ports and without the IP families that clusters may have added or lack which are not known.
func (s *state) withHeld(spec mcsv1alpha1.ServiceImportSpec) *mcsv1alpha1.ServiceImportSpec {
	has := &s.imported.Spec
	spec.Ports = slices.Clone(spec.Ports)
	for _, p := range has.Ports {
		if isNamed := func(of mcsv1alpha1.ServicePort) bool { return of.Name == p.Name }; contradicts(spec.Ports, p) == nil && !slices.ContainsFunc(spec.Ports, isNamed) {
			spec.Ports = append(spec.Ports, p)
		}
	}
	if isCommon := func(f corev1.IPFamily) bool { return slices.Contains(spec.IPFamilies, f) }; len(has.IPFamilies) > 0 && !slices.ContainsFunc(has.IPFamilies, func(f corev1.IPFamily) bool { return !isCommon(f) }) {
		spec.IPFamilies = has.IPFamilies
	}
	return &spec
}

// mayBeExported reports whether this cluster exports the service for all that is known, though it was not seen yet.
func (s *state) mayBeExported() bool { return s.isStale && s.published == nil }

// withdraws reports whether what is to be done about the derived Service deletes it, or what it has of this cluster.
func (s *state) withdraws(v verb) bool {
	hasEndpoints := func() bool {
		return s.derived.Annotations.Get(sharedAnnotation) == "true" || s.derived.Spec.Selector.Len() > 0
	}
	return s.isOwned() && (v == remove || v == recreate || v == update && s.mayBeExported() && hasEndpoints())
}

// clusters are the clusters that export the service: those that are known, and those that did and are not known.
func (s *state) clusters(m merged) []mcsv1alpha1.ClusterStatus {
	names := slices.Clone(m.clusters)
	for _, c := range s.imported.Status.Clusters {
		if slices.Contains(s.unknown, c.Cluster) {
			names = append(names, c.Cluster)
		}
	}
	slices.Sort(names)
	var list []mcsv1alpha1.ClusterStatus
	for _, name := range slices.Compact(names) {
		list = append(list, mcsv1alpha1.ClusterStatus{Cluster: name})
	}
	return list
}
