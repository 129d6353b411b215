// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// service is what this duty reads of a Service. Of one that does not participate, annotations are all that is kept.
type service struct {
	serviceMeta `json:"metadata"`
	slim.Cut    `json:"-"`
	Spec        serviceSpec `json:"spec"`
}

// CutDown implements slim.Cutter.
func (s *service) CutDown() { s.Labels, s.Spec = slim.Labels{}, serviceSpec{} }

type serviceMeta struct {
	slim.Meta
	Labels            slim.Labels              `json:"labels"`
	Annotations       slim.Subset[annotations] `json:"annotations"`
	DeletionTimestamp slim.Time                `json:"deletionTimestamp"`
}

type serviceSpec struct {
	ClusterIP  slim.String   `json:"clusterIP"`
	IPFamilies []slim.String `json:"ipFamilies"`
}

const (
	globalAnnotation = "service.cilium.io/global"
	syncAnnotation   = "service.cilium.io/global-sync-endpoint-slices"
	// familiesAnnotation is of Services of the multi-cluster services API: the IP families that they serve, of those that they have.
	familiesAnnotation = "clustermesh.cilium.io/supported-ip-families"
)

type annotations struct{}

// Keep implements slim.KeyFilter.
func (annotations) Keep(key string) bool {
	return key == globalAnnotation || key == syncAnnotation || key == familiesAnnotation
}

// Trim implements slim.Trimmer.
func (s *service) Trim() {
	if !s.participates() {
		s.Labels, s.Spec.IPFamilies = slim.Labels{}, nil
	}
}

func (s *service) isHeadless() bool {
	return strings.EqualFold(s.Spec.ClusterIP.String(), corev1.ClusterIPNone)
}

// participates reports whether a Service gets slices.
func (s *service) participates() bool {
	if !strings.EqualFold(s.Annotations.Get(globalAnnotation), "true") {
		return false
	}
	sync, set := s.Annotations.Lookup(syncAnnotation)
	return strings.EqualFold(sync, "true") || !set && s.isHeadless()
}

// hasFamily reports whether a Service has an address type, and serves it. One without families has all.
func (s *service) hasFamily(t discoveryv1.AddressType) bool {
	if served, says := s.Annotations.Lookup(familiesAnnotation); says && !slices.Contains(strings.Split(served, ","), string(t)) {
		return false
	}
	for _, f := range s.Spec.IPFamilies {
		if f.String() == string(t) {
			return true
		}
	}
	return len(s.Spec.IPFamilies) == 0
}

// meshSlice is an EndpointSlice of this duty.
type meshSlice struct {
	sliceMeta   `json:"metadata"`
	slim.Cut    `json:"-"`
	AddressType slim.String         `json:"addressType"`
	Endpoints   []endpoint          `json:"endpoints"`
	Ports       []slim.EndpointPort `json:"ports"`
}

// CutDown implements slim.Cutter: whose it is stays.
func (s *meshSlice) CutDown() {
	s.Labels, s.Owners = s.Labels.Only(discoveryv1.LabelServiceName, clusterLabel), nil
	s.Endpoints, s.Ports = nil, nil
}

type sliceMeta struct {
	slim.Meta
	Labels slim.Labels           `json:"labels"`
	Owners []slim.OwnerReference `json:"ownerReferences"`
}

type endpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Serving     *bool `json:"serving"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
	Hostname  string         `json:"hostname"`
	NodeName  slim.String    `json:"nodeName"`
	Zone      slim.String    `json:"zone"`
	TargetRef slim.TargetRef `json:"targetRef"`
}

const (
	manager      = "endpointslice-mesh-controller.cilium.io"
	clusterLabel = "multicluster.kubernetes.io/source-cluster"
)

var (
	services   = stream.Core[service, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))
	meshSlices = stream.Core[meshSlice, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).
			MatchingLabels(discoveryv1.LabelManagedBy + "=" + manager)
)

// serviceOf is the Service of a slice.
func serviceOf(s *meshSlice) slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(discoveryv1.LabelServiceName)}
}

// byService finds the slices of a Service.
var byService = stream.NewIndex("service", func(s *meshSlice, add func(slim.Key)) { add(serviceOf(s)) })
