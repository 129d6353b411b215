// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// exporter decides the key of each ServiceExport.
type exporter struct {
	exporterParams
	exports    *stream.Store[serviceExport]
	services   *stream.Store[service]
	namespaces *stream.Store[slim.Namespace]
	tooLarge   *kvstore.SizeReport
}

type exporterParams struct {
	cell.In

	Cluster    cluster.Config
	Exports    stream.Resource[serviceExport]
	Services   stream.Resource[service]
	Namespaces stream.Resource[slim.Namespace]
	Health     health.Reporter
}

func newExporter(p exporterParams) *exporter {
	return &exporter{exporterParams: p, tooLarge: kvstore.NewSizeReport(p.Health, "ServiceExports")}
}

// Open is called before anything is watched.
func (x *exporter) Open(ctx context.Context) (err error) {
	if x.exports, err = x.Exports.Store(ctx); err != nil {
		return err
	}
	if x.services, err = x.Services.Store(ctx); err != nil {
		return err
	}
	x.namespaces, err = x.Namespaces.Store(ctx)
	return err
}

// namespaceChanged is the ServiceExports of a Namespace.
func (x *exporter) namespaceChanged(ch stream.Change[slim.Namespace]) (keys []slim.Key) {
	for e := range stream.ByIndex(x.exports, exportsIn, ch.Key.Name) {
		keys = append(keys, e.Key())
	}
	return keys
}

// HasOneSource implements mirror.OneSource: a key is made of a ServiceExport and its Service.
func (x *exporter) HasOneSource() bool { return true }

// Desired is the value of the key of a ServiceExport, none in a Namespace that is not global. Else it is not known while the ServiceExport or its Service
// cannot be decoded, or is too large, nor while the scope of the Namespace is not known.
func (x *exporter) Desired(key slim.Key) (value []byte, known bool) {
	e, exists := x.exports.Get(key)
	scope := globalnamespace.Of(x.namespaces, key.Namespace, x.Cluster)
	if !exists && !x.exports.Hides(key) || scope == globalnamespace.Local { // however large it is
		x.tooLarge.Set(key.String(), "")
		return nil, true
	}
	if exists && e.IsCut() {
		x.tooLarge.Set(key.String(), "its key stays as it is: "+e.CutError().Error())
	}
	if hides(x.exports, key) || scope == globalnamespace.Unknown {
		return nil, false
	}
	s, exists := x.services.Get(key)
	if exists && s.IsCut() {
		x.tooLarge.Set(key.String(), "its key stays as it is: "+s.CutError().Error())
	}
	if hides(x.services, key) {
		return nil, false
	}
	published := exportOf(e, s, x.Cluster.ClusterName, x.Cluster.Release)
	if published == nil {
		x.tooLarge.Set(key.String(), "")
		return nil, true
	}
	beyond := portsBeyond(published)
	x.tooLarge.Set(key.String(), textOfBeyond(beyond))
	published.Ports = published.Ports[:len(published.Ports)-beyond]
	value, _ = json.Marshal(published) // strings, numbers and a time always have JSON
	return value, true
}

// fewPorts are so many that they fit beside the largest labels and annotations: a port has at most 500 bytes.
const fewPorts = 500

// portsBeyond is how many of the last ports of an export other clusters do not see: with them the value would be larger than etcd takes.
func portsBeyond(x *clustermesh.ServiceExport) int {
	if x == nil || len(x.Ports) <= fewPorts {
		return 0
	}
	without := *x
	without.Ports = []mcsv1alpha1.ServicePort{}
	text, _ := json.Marshal(&without)
	size := len(text)
	for i, p := range x.Ports {
		text, _ = json.Marshal(p)
		if size += len(text) + len(","); size > kvstore.MaxValue {
			return len(x.Ports) - i
		}
	}
	return 0
}

// textOfBeyond is portsBeyond for people, "" for none.
func textOfBeyond(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("other clusters do not see the last %d ports, since with them the key would be larger than etcd accepts", n)
}

// exportOf is what a cluster of a release publishes of a ServiceExport and its Service, nil if it is not valid. Both may be nil.
func exportOf(e *serviceExport, s *service, clusterName string, r release.Release) *clustermesh.ServiceExport {
	if e == nil || !e.DeletionTimestamp.IsZero() || whyInvalid(s) != "" {
		return nil
	}
	x := &clustermesh.ServiceExport{
		Cluster: clusterName, Name: e.Name, Namespace: e.Namespace.String(),
		Created: metav1.NewTime(e.CreationTimestamp.Time()),
		Ports:   []mcsv1alpha1.ServicePort{}, Type: typeOf(s),
		SessionAffinity: corev1.ServiceAffinityNone,
	}
	if s.Spec.SessionAffinity == slim.MakeString(string(corev1.ServiceAffinityClientIP)) {
		x.SessionAffinity, x.SessionAffinityConfig = corev1.ServiceAffinityClientIP, s.Spec.SessionAffinityConfig
	}
	x.SetTraffic(s.families(), s.Spec.InternalTrafficPolicy.String(), s.Spec.TrafficDistribution.String())
	if !release.TrafficInExports.In(r) {
		x.OmitDefaults()
	}
	x.Labels, _ = clustermesh.ExportedLabels(e.Spec.ExportedLabels.Map())
	x.Annotations, _ = clustermesh.ExportedAnnotations(e.Spec.ExportedAnnotations.Map())
	for _, p := range s.Spec.Ports {
		x.Ports = append(x.Ports, mcsv1alpha1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return x
}

func typeOf(s *service) mcsv1alpha1.ServiceImportType {
	if s.isHeadless() {
		return mcsv1alpha1.Headless
	}
	return mcsv1alpha1.ClusterSetIP
}

// notGlobal is why nothing is exported that is in a Namespace that is not global.
const notGlobal mcsv1alpha1.ServiceExportConditionReason = "NamespaceNotGlobal"

// whyInvalid is why a Service cannot be exported, "" if it can.
func whyInvalid(s *service) mcsv1alpha1.ServiceExportConditionReason {
	switch {
	case s == nil:
		return mcsv1alpha1.ServiceExportReasonNoService
	case s.Spec.Type == slim.MakeString(string(corev1.ServiceTypeExternalName)):
		return mcsv1alpha1.ServiceExportReasonInvalidServiceType
	}
	return ""
}
