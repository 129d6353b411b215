// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustermesh"
)

// mergeTraffic decides about the IP families, by what exports have in common, and about where traffic goes, by the oldest export.
func (m *merged) mergeTraffic(exports []*clustermesh.ServiceExport) {
	first := exports[0]
	if m.spec.TrafficDistribution = first.TrafficDistribution; policyOf(first.InternalTrafficPolicy) == corev1.ServiceInternalTrafficPolicyLocal {
		m.spec.InternalTrafficPolicy = first.InternalTrafficPolicy
	}
	m.mergeFamilies(exports)
	m.compare(mcsv1alpha1.ServiceExportReasonInternalTrafficPolicyConflict, "internal traffic policy", exports, func(e *clustermesh.ServiceExport) any {
		return policyOf(e.InternalTrafficPolicy)
	})
	m.compare(mcsv1alpha1.ServiceExportReasonTrafficDistributionConflict, "traffic distribution", exports, func(e *clustermesh.ServiceExport) any {
		return e.TrafficDistribution
	})
}

// mergeFamilies leaves the IP families that all exports have, in the order of the oldest one that says some. An export that has none of
// those of older ones does not count, and one that does not say them has all. Neither does one that has not the first of this cluster's export: it would leave
// that without the addresses that its clients have.
func (m *merged) mergeFamilies(exports []*clustermesh.ServiceExport) {
	var winner string
	var differ []string
	for _, e := range exports {
		common := slices.DeleteFunc(slices.Clone(m.spec.IPFamilies), func(f corev1.IPFamily) bool { return !slices.Contains(e.IPFamilies, f) })
		switch {
		case len(e.IPFamilies) == 0:
		case winner == "":
			winner, m.spec.IPFamilies = e.Cluster, slices.Clone(e.IPFamilies)
		case len(common) == 0, winner == m.own && common[0] != m.spec.IPFamilies[0]:
			differ = append(differ, e.Cluster)
		default:
			m.spec.IPFamilies = common
		}
	}
	m.addConflict(mcsv1alpha1.ServiceExportReasonIPFamilyConflict, "set of IP families", winner, differ)
}

// policyOf is an internal traffic policy, or the default.
func policyOf(p *corev1.ServiceInternalTrafficPolicy) corev1.ServiceInternalTrafficPolicy {
	if p == nil {
		return corev1.ServiceInternalTrafficPolicyCluster
	}
	return *p
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

// supported are the IP families of the service that this cluster has, in their order, and all that it has where no export says them.
func (s *state) supported(spec *mcsv1alpha1.ServiceImportSpec) (families []corev1.IPFamily) {
	if len(spec.IPFamilies) == 0 {
		return s.families
	}
	for _, f := range spec.IPFamilies {
		if slices.Contains(s.families, f) {
			families = append(families, f)
		}
	}
	return families
}

// isSupported reports whether a derived Service serves an IP family.
func isSupported(d *corev1.Service, family string) bool {
	families, says := d.Annotations[supportedFamilies]
	return !says || slices.Contains(strings.Split(families, ","), family)
}

// join is IP families as the annotation has them.
func join(families []corev1.IPFamily) string {
	texts := make([]string, len(families))
	for i, f := range families {
		texts[i] = string(f)
	}
	return strings.Join(texts, ",")
}

// setTraffic sets where the traffic of a derived Service goes, and which IP families it has. Those of one that exists stay: they are more than
// are supported where the service has lost one, and another Service would have other addresses. It gets one more if it has none that is.
func (s *state) setTraffic(d *corev1.Service, spec *mcsv1alpha1.ServiceImportSpec) {
	d.Spec.InternalTrafficPolicy, d.Spec.TrafficDistribution = new(policyOf(spec.InternalTrafficPolicy)), spec.TrafficDistribution
	says := release.SupportedFamilies.In(s.release)
	exists := s.derived != nil && s.isOwned()
	if !exists && (says || len(spec.IPFamilies) > 0) || exists && !s.servesSome(spec) && s.derived.isSingleStack() {
		d.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
	if delete(d.Annotations, supportedFamilies); says && len(s.supported(spec)) > 0 {
		d.Annotations[supportedFamilies] = join(s.supported(spec))
	}
}

// servesSome reports whether the derived Service has an IP family that is supported. One of an API server that does not know them has all.
func (s *state) servesSome(spec *mcsv1alpha1.ServiceImportSpec) bool {
	supported, has := s.supported(spec), s.derived.families()
	return len(has) == 0 || len(supported) == 0 || slices.ContainsFunc(has, func(f corev1.IPFamily) bool { return slices.Contains(supported, f) })
}

func (s *service) isSingleStack() bool {
	return s.Spec.IPFamilyPolicy.String() == string(corev1.IPFamilyPolicySingleStack)
}

// addresses are those of the derived Service for the IP families that are supported, in their order.
func (s *state) addresses(spec *mcsv1alpha1.ServiceImportSpec) (ips []string) {
	all := s.derived.addresses()
	if spec == nil || len(s.supported(spec)) == 0 {
		return all
	}
	for _, f := range s.supported(spec) {
		for _, ip := range all {
			if familyOf(ip) == f {
				ips = append(ips, ip)
			}
		}
	}
	return ips
}

func familyOf(ip string) corev1.IPFamily {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
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
		want.Spec.IPFamilyPolicy != nil && s.Spec.IPFamilyPolicy.String() != string(*want.Spec.IPFamilyPolicy)
}

// noFamily is the refusal of a derived Service that is not there, or serves nothing, as what has the IP families of the service has none of them.
func noFamily(spec *mcsv1alpha1.ServiceImportSpec, what string, has []corev1.IPFamily) refusal {
	return refusal{mcsv1alpha1.ServiceImportReasonIPFamilyNotSupported, fmt.Sprintf("no derived Service: the service has the IP families %v, and %s has %v", spec.IPFamilies, what, has)}
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
