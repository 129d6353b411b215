// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	derivedPrefix     = "derived-"
	derivedAnnotation = "multicluster.kubernetes.io/derived-service"
	globalAnnotation  = "service.cilium.io/global"
	sharedAnnotation  = "service.cilium.io/shared"
)

// derivedKey is the key of the derived Service of a name.
func derivedKey(of slim.Key) slim.Key {
	const length = 10
	sum := sha256.Sum256([]byte(of.Namespace + "/" + of.Name))
	text := strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))
	return slim.Key{Namespace: of.Namespace, Name: derivedPrefix + text[:length]}
}

// isDerived reports whether the Service is the derived one of a name: its label says so, and a ServiceImport or ServiceExport
// of that name is an owner.
func (s *service) isDerived(of slim.Key) bool {
	if s.IsCut() {
		return s.of == slim.MakeString(of.Name)
	}
	return s.Labels.Get(mcsv1alpha1.LabelServiceName) == of.Name && slices.ContainsFunc(s.Owners, func(o slim.OwnerReference) bool {
		group, _, _ := strings.Cut(o.APIVersion.String(), "/")
		kind := o.Kind.String()
		return group == mcsv1alpha1.GroupName && o.Name == of.Name && (kind == mcsv1alpha1.ServiceImportKindName || kind == mcsv1alpha1.ServiceExportKindName)
	})
}

// desired is the derived Service, nil if there is to be none, such as in a Namespace that is not global, or without an
// IP family of this cluster. spec is that of the ServiceImport, nil without one.
func (s *state) desired(spec *mcsv1alpha1.ServiceImportSpec) *corev1.Service {
	if spec == nil || s.imported == nil || s.isLocal {
		return nil
	}
	if len(spec.IPFamilies) > 0 && len(s.supported(spec)) == 0 {
		return nil
	}
	name := derivedKey(s.key)
	d := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Ports: s.ports(spec.Ports),
			SessionAffinity: cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone), SessionAffinityConfig: spec.SessionAffinityConfig,
		},
	}
	if spec.Type == mcsv1alpha1.Headless {
		d.Spec.ClusterIP = corev1.ClusterIPNone
	}
	s.inherit(d)
	s.setTraffic(d, spec)
	d.Annotations[globalAnnotation], d.Annotations[sharedAnnotation] = "true", "false"
	if s.published != nil {
		d.Annotations[sharedAnnotation] = "true"
	}
	d.Labels[mcsv1alpha1.LabelServiceName], d.Labels[mcsv1alpha1.LabelSourceCluster] = s.key.Name, s.cluster
	d.OwnerReferences = s.owners()
	d.Spec.Selector = s.nextSelector(d)
	return d
}

// inherit adds the labels and annotations of the ServiceImport, but for those that are about the object itself.
func (s *state) inherit(d *corev1.Service) {
	maps.Copy(d.Labels, s.imported.Labels.Map())
	for key, value := range s.imported.Annotations.All() {
		switch key {
		case derivedAnnotation, madeHere, labelsOfExports, annotationsOfExports, corev1.LastAppliedConfigAnnotation:
		default:
			d.Annotations[key] = value
		}
	}
}

// owners are the ServiceImport and, where Kubernetes makes the EndpointSlices, the ServiceExport, none of them as the controller.
func (s *state) owners() []metav1.OwnerReference {
	owners := []metav1.OwnerReference{{APIVersion: servedVersion(s.imported.APIVersion), Kind: mcsv1alpha1.ServiceImportKindName, Name: s.imported.Name, UID: s.imported.UID.API()}}
	if e := s.export; e != nil && e.DeletionTimestamp.IsZero() && !release.CopiedEndpoints.In(s.release) {
		owners = append(owners, metav1.OwnerReference{APIVersion: servedVersion(e.APIVersion), Kind: mcsv1alpha1.ServiceExportKindName, Name: e.Name, UID: e.UID.API()})
	}
	return owners
}

// ports are the ports of the derived Service. They lead to the ports of pods that the Service has for them.
func (s *state) ports(of []mcsv1alpha1.ServicePort) (ports []corev1.ServicePort) {
	local := s.targets()
	for _, p := range of {
		d := corev1.ServicePort{Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: intstr.FromInt32(p.Port)}
		if target, known := local[namedPort{d.Name, d.Protocol}]; known {
			d.TargetPort = target
		}
		ports = append(ports, d)
	}
	return ports
}

type namedPort struct {
	name     string
	protocol corev1.Protocol
}

// targets are the ports of pods that the Service has, none if it is not exported.
func (s *state) targets() map[namedPort]intstr.IntOrString {
	if s.published == nil {
		return nil
	}
	all := map[namedPort]intstr.IntOrString{}
	for _, p := range s.service.Spec.Ports {
		if p.TargetPort != (intstr.IntOrString{}) {
			all[namedPort{p.Name, cmp.Or(p.Protocol, corev1.ProtocolTCP)}] = p.TargetPort
		}
	}
	return all
}

// planDerived is what to do about the derived Service.
func (s *state) planDerived(want *corev1.Service) verb {
	has := s.derived
	switch {
	case has == nil && want == nil:
		return keep
	case has == nil:
		return create
	case want == nil:
		return remove
	case has.isHeadless() != (want.Spec.ClusterIP == corev1.ClusterIPNone):
		return recreate
	case s.hasOtherMetadata(want), has.differs(want):
		return update
	}
	return keep
}

// isOriginals reports whether an original of 1.18 or later has made the derived Service: the ServiceImport is its controller.
func (s *state) isOriginals() bool {
	return s.derived != nil && slices.ContainsFunc(s.derived.Owners, func(o slim.OwnerReference) bool {
		return o.Controller && s.imported != nil && o.UID == s.imported.UID
	})
}

// hasOtherMetadata reports whether the derived Service has other labels, annotations or owners than it is to have. Where those that an
// original has set mean the same, they stay until there is more to change.
func (s *state) hasOtherMetadata(want *corev1.Service) bool {
	if !s.isOriginals() {
		return !maps.Equal(s.derived.Labels.Map(), want.Labels) || !maps.Equal(s.derived.Annotations.Map(), want.Annotations) ||
			!slices.EqualFunc(s.derived.Owners, want.OwnerReferences, sameOwner)
	}
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, s.derived.Labels.Map())
	maps.Copy(annotations, s.derived.Annotations.Map())
	if _, has := labels[mcsv1alpha1.LabelSourceCluster]; !has {
		labels[mcsv1alpha1.LabelSourceCluster] = s.cluster
	}
	if _, has := annotations[sharedAnnotation]; !has {
		annotations[sharedAnnotation] = want.Annotations[sharedAnnotation]
	}
	delete(annotations, derivedAnnotation)
	return !maps.Equal(labels, want.Labels) || !maps.Equal(annotations, want.Annotations)
}

// differs reports whether the spec of a Service is not as it is to be.
func (s *service) differs(want *corev1.Service) bool {
	return s.Spec.Type.String() != string(want.Spec.Type) || !maps.Equal(s.Spec.Selector.Map(), want.Spec.Selector) ||
		s.Spec.SessionAffinity.String() != string(want.Spec.SessionAffinity) ||
		want.Spec.SessionAffinityConfig != nil && !reflect.DeepEqual(s.Spec.SessionAffinityConfig, want.Spec.SessionAffinityConfig) ||
		!slices.EqualFunc(s.Spec.Ports, want.Spec.Ports, func(is, of corev1.ServicePort) bool { return samePort(is, of, len(want.Spec.Selector) > 0) }) ||
		s.sendsElsewhere(want)
}

func sameOwner(is slim.OwnerReference, want metav1.OwnerReference) bool {
	return is.APIVersion.String() == want.APIVersion && is.Kind.String() == want.Kind && is.Name == want.Name && is.UID.API() == want.UID && !is.Controller
}

// samePort reports whether a port is as it is to be. Without a selector it does not matter which port of pods it leads to.
func samePort(is, want corev1.ServicePort, selects bool) bool {
	is.NodePort = 0
	if !selects {
		is.TargetPort = want.TargetPort
	}
	return reflect.DeepEqual(is, want)
}

// addresses are those of a derived Service that has some.
func (s *service) addresses() []string {
	if s == nil || s.isHeadless() {
		return nil
	}
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs
	}
	if ip := s.Spec.ClusterIP.String(); ip != "" {
		return []string{ip}
	}
	return nil
}
