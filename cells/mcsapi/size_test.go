// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// streamOf is a stream of objects that do not change.
func streamOf[T any](t *testing.T, objs ...*T) *stream.Local[T] {
	t.Helper()
	l, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	l.Replace(objs...)
	return l
}

// MCS-49; K3 of the contract's tenants.md: an export of the largest objects that the API server accepts fits into a request of etcd; the
// ports that are left out are named on the ServiceExport and in health.
func TestExportsLargerThanAKey(t *testing.T) {
	var ports []corev1.ServicePort
	protocol := strings.Repeat("p", 60) + ".test/" + strings.Repeat("q", 60)
	for i := range 10_000 {
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprintf("p%062d", i), Protocol: corev1.ProtocolSCTP, Port: int32(i + 1), AppProtocol: &protocol})
	}
	labels, annotations := map[string]string{}, map[string]string{}
	for i := range 15_000 {
		labels[fmt.Sprintf("%x", i)] = ""
	}
	annotations["markup"] = strings.Repeat("<", 63<<10)
	e := newExport()
	e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = slim.MakeLabels(labels), slim.MakeLabels(annotations)
	n := &slim.Namespace{}
	n.Name = "shop"
	tree := health.NewTree()
	x := newExporter(exporterParams{
		Cluster: cluster.Config{ClusterName: "c1", ClusterMeshDefaultGlobalNamespace: true, Release: release.Newest()},
		Exports: streamOf(t, e), Services: streamOf(t, newService("10.96.0.10", ports...)), Namespaces: streamOf(t, n), Health: tree.Reporter("mcsapi"),
	})
	if err := x.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	value, known := x.Desired(web)
	var got clustermesh.ServiceExport
	if err := json.Unmarshal(value, &got); err != nil || !known {
		t.Fatal(known, err)
	}
	if len(value) > kvstore.MaxValue || len(got.Labels) != len(labels) || len(got.Annotations) != 1 || len(got.Ports) < 1000 || len(got.Ports) == len(ports) {
		t.Errorf("%d bytes with %d ports, %d labels and %d annotations", len(value), len(got.Ports), len(got.Labels), len(got.Annotations))
	}
	want := fmt.Sprintf("other clusters do not see the last %d ports", len(ports)-len(got.Ports))
	s := newService("10.96.0.10", ports...)
	message := (&state{export: e, service: s, published: exportOf(e, s, "c1", release.Newest())}).readyCondition(refusal{}).Message
	if !strings.Contains(message, want) {
		t.Errorf("the condition says %q", message)
	}
	shown := ""
	for _, part := range tree.Snapshot() {
		shown += part.Message
	}
	if !strings.Contains(shown, "shop/web ("+want) {
		t.Errorf("health says %q", shown)
	}
	x.Services.(*stream.Local[service]).Replace(newService("10.96.0.10", ports[:100]...))
	if value, _ = x.Desired(web); json.Unmarshal(value, &got) != nil || len(got.Ports) != 100 || x.tooLarge.Has("shop/web") {
		t.Errorf("%d ports of 100", len(got.Ports))
	}
}
