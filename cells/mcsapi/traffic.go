// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustermesh"
)

// mergeTraffic decides about the IP families and where traffic goes, each by the oldest export.
func (m *merged) mergeTraffic(exports []*clustermesh.ServiceExport) {
	first := exports[0]
	m.spec.IPFamilies, m.spec.InternalTrafficPolicy, m.spec.TrafficDistribution = first.IPFamilies, first.InternalTrafficPolicy, first.TrafficDistribution
	m.compare(mcsv1alpha1.ServiceExportReasonIPFamilyConflict, "set of IP families", exports, func(e *clustermesh.ServiceExport) any { return familySet(e.IPFamilies) })
	m.compare(mcsv1alpha1.ServiceExportReasonInternalTrafficPolicyConflict, "internal traffic policy", exports, func(e *clustermesh.ServiceExport) any {
		return e.InternalTrafficPolicy
	})
	m.compare(mcsv1alpha1.ServiceExportReasonTrafficDistributionConflict, "traffic distribution", exports, func(e *clustermesh.ServiceExport) any {
		return e.TrafficDistribution
	})
}

// familySet is the IP families of an export in an order of their own. An export that has none is one of IPv4 alone.
func familySet(families []corev1.IPFamily) []corev1.IPFamily {
	if len(families) == 0 {
		return []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return slices.Sorted(slices.Values(families))
}

// familiesOf are the IP families that pods of a cluster have.
func familiesOf(c cluster.Config) (families []corev1.IPFamily) {
	if c.EnableIPv4 {
		families = append(families, corev1.IPv4Protocol)
	}
	if c.EnableIPv6 {
		families = append(families, corev1.IPv6Protocol)
	}
	return families
}

// derivedFamilies are the IP families of the derived Service, none for the default of the API server. supported is false if
// this cluster has none of those of the ServiceImport.
func (s *state) derivedFamilies(spec *mcsv1alpha1.ServiceImportSpec) (families []corev1.IPFamily, supported bool) {
	for _, f := range spec.IPFamilies {
		if slices.Contains(s.families, f) {
			families = append(families, f)
		}
	}
	if len(families) == 2 && s.derived != nil && s.isOwned() && len(s.derived.Spec.IPFamilies) > 0 && s.derived.families()[0] == families[1] {
		slices.Reverse(families) // the first one of a Service cannot be changed
	}
	return families, len(families) > 0 || len(spec.IPFamilies) == 0
}

// setTraffic sets where the traffic of a derived Service goes.
func setTraffic(d *corev1.ServiceSpec, spec *mcsv1alpha1.ServiceImportSpec, families []corev1.IPFamily) {
	policy := corev1.ServiceInternalTrafficPolicyCluster
	if p := spec.InternalTrafficPolicy; p != nil {
		policy = *p
	}
	d.InternalTrafficPolicy, d.TrafficDistribution = &policy, spec.TrafficDistribution
	if len(families) == 0 {
		return
	}
	d.IPFamilies = families
	d.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	if len(families) > 1 {
		d.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
}

// hasOtherFamily reports whether a Service has a first IP family that it cannot keep.
func (s *service) hasOtherFamily(want *corev1.Service) bool {
	families := s.families()
	return len(families) > 0 && len(want.Spec.IPFamilies) > 0 && families[0] != want.Spec.IPFamilies[0]
}

// sendsElsewhere reports whether the traffic of a Service goes elsewhere than it is to.
func (s *service) sendsElsewhere(want *corev1.Service) bool {
	policy, distribution := s.Spec.InternalTrafficPolicy.String(), ""
	if policy == "" { // of an object that is older than the field
		policy = string(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if d := want.Spec.TrafficDistribution; d != nil {
		distribution = *d
	}
	return policy != string(*want.Spec.InternalTrafficPolicy) || s.Spec.TrafficDistribution.String() != distribution ||
		len(want.Spec.IPFamilies) > 0 && !slices.Equal(s.families(), want.Spec.IPFamilies)
}

// noFamily is the refusal of a derived Service whose IP families this cluster does not have.
func (s *state) noFamily(spec *mcsv1alpha1.ServiceImportSpec) refusal {
	return refusal{mcsv1alpha1.ServiceImportReasonIPFamilyNotSupported, fmt.Sprintf("no derived Service: the service has the IP families %v, and this cluster has %v", spec.IPFamilies, s.families)}
}

// refusalReason is the reason of a ServiceImport whose derived Service the API server does not accept.
func refusalReason(err error) mcsv1alpha1.ServiceImportConditionReason {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if strings.HasPrefix(cause.Field, "spec.ipFamil") {
				return mcsv1alpha1.ServiceImportReasonIPFamilyNotSupported
			}
		}
	}
	return failed
}
