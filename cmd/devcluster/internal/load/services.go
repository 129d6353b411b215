// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func (p *plan) service(w *workload) item {
	return item{kind: serviceKind, shape: "service", object: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: w.name, UID: p.uid("Service", w.namespace, w.name),
			CreationTimestamp: after(time.Minute), Labels: maps.Clone(w.labels),
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: selector(w),
			ClusterIP: clusterIP(w).String(), ClusterIPs: []string{clusterIP(w).String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			Ports: []corev1.ServicePort{
				{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString("http")},
				{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: portMetrics, TargetPort: intstr.FromString("metrics")},
			},
		},
	}}
}

// ipAddress is what the API server makes when a service gets its cluster IP. It
// is made now: a running API server deletes an address that is older than a
// minute and whose service it has not seen yet.
func (p *plan) ipAddress(w *workload) item {
	name := clusterIP(w).String()
	return item{kind: ipAddressKind, shape: "ipaddress", object: &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: p.uid("IPAddress", "", name), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{networkingv1.LabelIPAddressFamily: "IPv4", networkingv1.LabelManagedBy: "ipallocator.k8s.io"},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: w.namespace, Name: w.name}},
	}}
}

// slice is a part of a service's endpoints.
type slice struct {
	*workload
	number, first, count int
}

const endpointsPerSlice = 100

func (p *plan) slices(services []*workload) []slice {
	var all []slice
	for _, w := range services {
		for number := 0; number*endpointsPerSlice < w.replicas; number++ {
			first := number * endpointsPerSlice
			all = append(all, slice{w, number, first, min(endpointsPerSlice, w.replicas-first)})
		}
	}
	return all
}

func (p *plan) endpointSlice(s slice) item {
	name := s.name + "-" + digest(fmt.Sprintf("slice/%s/%d", s.name, s.number))[:5]
	owner := p.uid("Service", s.namespace, s.name)
	labels := maps.Clone(s.labels)
	labels[discoveryv1.LabelServiceName] = s.name
	labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	object := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name, GenerateName: s.name + "-", UID: p.uid("EndpointSlice", s.namespace, name), Generation: 1,
			CreationTimestamp: after(time.Minute), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: s.name, UID: owner,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("http"), Port: ptr.To[int32](portHTTP), Protocol: ptr.To(corev1.ProtocolTCP)},
			{Name: ptr.To("metrics"), Port: ptr.To[int32](portMetrics), Protocol: ptr.To(corev1.ProtocolTCP)},
		},
	}
	for replica := s.first; replica < s.first+s.count; replica++ {
		object.Endpoints = append(object.Endpoints, p.endpoint(s.workload, replica))
	}
	return item{kind: endpointSliceKind, shape: "endpointslice", fillers: []string{string(owner)}, object: object}
}

func (p *plan) endpoint(w *workload, replica int) discoveryv1.Endpoint {
	node, host := p.place(w, replica)
	name := p.podName(w, replica)
	return discoveryv1.Endpoint{
		Addresses: []string{podIP(node, host).String()},
		Conditions: discoveryv1.EndpointConditions{
			Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false),
		},
		NodeName: ptr.To(nodeName(node)), Zone: ptr.To(nodeLabels(node)[corev1.LabelTopologyZone]),
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: w.namespace, Name: name, UID: p.podUID(w, name)},
	}
}
