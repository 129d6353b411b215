// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/job"
)

// admitted returns those exports of remote clusters that count here, with the ports that do. Those of a name that this cluster exports, or that
// has a ServiceImport of a user, make no objects, and are not counted.
func (c *controller) admitted(s *state, exports []*clustermesh.ServiceExport) (admitted []*clustermesh.ServiceExport) {
	isFree := s.published != nil || s.imported != nil && !s.followsExports() || !c.hasNamespace(s.key.Namespace)
	counts, ports := map[string]bool{}, map[string]int{}
	for _, e := range exports {
		if counts[e.Cluster] = !isFree; !isFree && !c.admission.admit(contribution{e.Cluster, s.key}, s.imported != nil, c.held) {
			s.leftOut = true
			continue
		}
		bounded, left := boundPorts(e, s.imported, c.Config.ClusterMeshMCSAPIMaxPorts)
		if admitted = append(admitted, bounded); left > 0 && c.hasNamespace(s.key.Namespace) {
			ports[e.Cluster] = left
		}
	}
	c.admission.leavePorts(s.key, ports)
	c.enqueueNames(s.key.Namespace, c.admission.release(s.key, func(cluster string) bool {
		return counts[cluster] || !isFree && slices.Contains(s.unknown, cluster)
	}))
	return admitted
}

// held are the names of a namespace that have a ServiceImport, and that a cluster exports.
func (c *controller) held(cluster, namespace string) (names []string) {
	for i := range stream.ByIndex(c.imports, importsIn, namespace) {
		if _, state := c.Mesh.ServiceExports.Get(cluster, i.Key()); state == clustermesh.Present && i.Annotations.Get(madeHere) != ofUser {
			names = append(names, i.Name)
		}
	}
	return names
}

// boundPorts is an export with a bounded number of ports that a Service can have, and how many are left out. Those that the ServiceImport has stay, and
// come first.
func boundPorts(e *clustermesh.ServiceExport, imported *serviceImport, most int) (bounded *clustermesh.ServiceExport, left int) {
	if !slices.ContainsFunc(e.Ports, isInvalid) {
		return firstPorts(e, imported, most)
	}
	with := *e
	with.Ports = slices.DeleteFunc(slices.Clone(e.Ports), isInvalid)
	bounded, left = firstPorts(&with, imported, most)
	return bounded, left + len(e.Ports) - len(with.Ports)
}

// isInvalid reports whether the API server would refuse a Service for one of its ports. The number of a port is checked where the export is decoded.
func isInvalid(p mcsv1alpha1.ServicePort) bool {
	switch p.Protocol {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0 || p.AppProtocol != nil && len(validation.IsQualifiedName(*p.AppProtocol)) > 0
	}
	return true
}

// firstPorts is boundPorts of ports that a Service can have.
func firstPorts(e *clustermesh.ServiceExport, imported *serviceImport, most int) (bounded *clustermesh.ServiceExport, left int) {
	if most <= 0 || len(e.Ports) <= most {
		return e, 0
	}
	type portID struct {
		name string
		portNumber
	}
	idOf := func(p mcsv1alpha1.ServicePort) portID {
		return portID{p.Name, portNumber{p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP)}}
	}
	held := map[portID]bool{}
	if imported != nil {
		for _, p := range imported.Spec.Ports {
			held[idOf(p)] = true
		}
	}
	n := 0 // that are held
	for _, p := range e.Ports {
		if held[idOf(p)] {
			n++
		}
	}
	with := *e
	with.Ports = nil
	for _, p := range e.Ports {
		if isHeld := held[idOf(p)]; isHeld || n < most {
			with.Ports = append(with.Ports, p)
			if !isHeld {
				n++
			}
		}
	}
	return &with, len(e.Ports) - len(with.Ports)
}

// enqueueNames reconciles names of a namespace.
func (c *controller) enqueueNames(namespace string, names []string) {
	c.mu.Lock()
	enqueue := c.enqueue
	c.mu.Unlock()
	if enqueue == nil {
		return // all are, when remote clusters are followed
	}
	for _, name := range names {
		enqueue(slim.Key{Namespace: namespace, Name: name}, k8s.Trigger{Kind: "Namespace", Name: namespace})
	}
}

// reportPause is between looks at what is left out: many exports that come at once are one report.
const reportPause = time.Second

// reportLeftOut reports what is left out of the exports of remote clusters: health and a metric follow it, and the log has one line when it begins.
func (c *controller) reportLeftOut(ctx context.Context, _ reconcile.Enqueue) {
	part, before, was := c.Deps.Health.Child("left-out"), "", map[string]int{}
	for job.Sleep(ctx, reportPause) {
		now, text := c.admission.leftOut()
		c.Metrics.reportLeftOut(c.Cluster.ClusterName, was, now)
		was = now
		switch {
		case text == before:
			continue
		case text == "":
			part.OK("")
		default:
			part.Degraded("exports of remote clusters are left out", errors.New(text))
		}
		if before == "" {
			c.Log.Warn("exports of remote clusters, or ports of them, are left out", "leftOut", text)
		}
		before = text
	}
}
