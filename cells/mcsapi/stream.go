// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// serviceExport is what is read of a ServiceExport.
type serviceExport struct {
	APIVersion slim.String `json:"apiVersion"`
	exportMeta `json:"metadata"`
	slim.Cut   `json:"-"`
	Spec       struct {
		ExportedLabels      slim.Labels `json:"exportedLabels"`
		ExportedAnnotations slim.Labels `json:"exportedAnnotations"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// CutDown implements slim.Cutter.
func (e *serviceExport) CutDown() {
	e.Spec.ExportedLabels, e.Spec.ExportedAnnotations, e.Status.Conditions = slim.Labels{}, slim.Labels{}, nil
}

// servedVersion is the version in which an object was read, which the installed definition serves.
func servedVersion(of slim.String) string {
	return cmp.Or(of.String(), api.ServiceImportResource.GroupVersion().String())
}

type exportMeta struct {
	slim.Meta
	CreationTimestamp slim.Time `json:"creationTimestamp"`
	DeletionTimestamp slim.Time `json:"deletionTimestamp"`
}

// serviceImport is what is read of a ServiceImport.
type serviceImport struct {
	APIVersion slim.String `json:"apiVersion"`
	importMeta `json:"metadata"`
	slim.Cut   `json:"-"`
	Spec       mcsv1alpha1.ServiceImportSpec   `json:"spec"`
	Status     mcsv1alpha1.ServiceImportStatus `json:"status"`
}

// CutDown implements slim.Cutter.
func (i *serviceImport) CutDown() {
	i.Labels, i.Spec.Ports, i.Status = slim.Labels{}, nil, mcsv1alpha1.ServiceImportStatus{}
	i.Annotations = i.Annotations.Only(madeHere, derivedAnnotation, supportedFamilies)
}

type importMeta struct {
	slim.Meta
	Labels            slim.Labels `json:"labels"`
	Annotations       slim.Labels `json:"annotations"`
	DeletionTimestamp slim.Time   `json:"deletionTimestamp"`
}

// service is what is read of a Service. Labels and annotations are kept of derived ones.
type service struct {
	serviceMeta `json:"metadata"`
	slim.Cut    `json:"-"`
	Spec        serviceSpec `json:"spec"`

	of slim.String `json:"-"` // of one that is cut: the name that it is the derived Service of
}

// CutDown implements slim.Cutter: whether it is a derived Service stays.
func (s *service) CutDown() {
	of := slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(mcsv1alpha1.LabelServiceName)}
	if derivedKey(of) == s.Key() && s.isDerived(of) {
		s.of = slim.MakeString(of.Name)
	}
	s.Labels, s.Annotations, s.Owners, s.Spec = slim.Labels{}, slim.Labels{}, nil, serviceSpec{}
}

type serviceMeta struct {
	slim.Meta
	Labels            slim.Labels           `json:"labels"`
	Annotations       slim.Labels           `json:"annotations"`
	Owners            []slim.OwnerReference `json:"ownerReferences"`
	DeletionTimestamp slim.Time             `json:"deletionTimestamp"`
}

type serviceSpec struct {
	Type                  slim.String                   `json:"type"`
	ClusterIP             slim.String                   `json:"clusterIP"`
	ClusterIPs            []string                      `json:"clusterIPs"`
	Selector              slim.Labels                   `json:"selector"`
	Ports                 []corev1.ServicePort          `json:"ports"`
	SessionAffinity       slim.String                   `json:"sessionAffinity"`
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig"`
	IPFamilies            []slim.String                 `json:"ipFamilies"`
	IPFamilyPolicy        slim.String                   `json:"ipFamilyPolicy"`
	InternalTrafficPolicy slim.String                   `json:"internalTrafficPolicy"`
	TrafficDistribution   slim.String                   `json:"trafficDistribution"`
}

// Trim implements slim.Trimmer.
func (s *service) Trim() {
	if !strings.HasPrefix(s.Name, derivedPrefix) {
		s.Labels, s.Annotations, s.Owners = slim.Labels{}, slim.Labels{}, nil
	}
}

func (s *service) isHeadless() bool {
	return strings.EqualFold(s.Spec.ClusterIP.String(), corev1.ClusterIPNone)
}

var (
	exports  = stream.Custom[serviceExport](api.ServiceExportResource).OfKind(mcsv1alpha1.ServiceExportKindName)
	imports  = stream.Custom[serviceImport](api.ServiceImportResource).OfKind(mcsv1alpha1.ServiceImportKindName)
	services = stream.Core[service, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))
)

// families are the IP families of a Service.
func (s *service) families() (families []corev1.IPFamily) {
	for _, f := range s.Spec.IPFamilies {
		families = append(families, corev1.IPFamily(f.String()))
	}
	return families
}

// What is exported in a Namespace, and what is imported there.
var (
	exportsIn = stream.NewIndex("namespace", func(e *serviceExport, add func(string)) { add(e.Namespace.String()) })
	importsIn = stream.NewIndex("namespace", func(i *serviceImport, add func(string)) { add(i.Namespace.String()) })
)
