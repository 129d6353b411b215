// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ciliumv2 "github.com/skep-operator/skep/resources/api/v2"
)

// securityLabels are those of a workload's identity, as "source:key" to value, with the named ports as agents from 1.20 on
// give them to the endpoints that they make.
func (p *plan) securityLabels(w *workload) map[string]string {
	labels := map[string]string{
		"k8s:io.kubernetes.pod.namespace":             w.namespace,
		"k8s:io.cilium.k8s.policy.cluster":            "default",
		"k8s:io.cilium.k8s.policy.serviceaccount":     "default",
		namespaceLabel("kubernetes.io/metadata.name"): w.namespace,
		"gen:io.cilium.k8s.named-ports":               fmt.Sprintf("admin.TCP.%d_http.TCP.%d_metrics.TCP.%d", portAdmin, portHTTP, portMetrics),
	}
	for key, value := range w.labels {
		labels["k8s:"+key] = value
	}
	if team := w.labels["team"]; team != "" {
		labels[namespaceLabel("team")] = team
	}
	return labels
}

func namespaceLabel(key string) string { return "k8s:io.cilium.k8s.namespace.labels." + key }

func (p *plan) ciliumIdentity(w *workload) item {
	labels := map[string]string{"io.kubernetes.pod.namespace": w.namespace}
	name := strconv.FormatInt(w.identity, 10)
	return item{kind: ciliumIdentityKind, shape: fmt.Sprintf("ciliumidentity/%v", w.daemonSet), object: &ciliumv2.CiliumIdentity{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: p.uid("CiliumIdentity", "", name), Generation: 1, CreationTimestamp: after(2 * time.Minute), Labels: labels,
		},
		SecurityLabels: p.securityLabels(w),
	}}
}

func (p *plan) ciliumEndpoint(w *workload, replica int) item {
	name := p.podName(w, replica)
	node, host := p.place(w, replica)
	owner := p.podUID(w, name)
	sandbox := digest(name + "/sandbox")
	return item{kind: ciliumEndpointKind, shape: fmt.Sprintf("ciliumendpoint/%v", w.daemonSet), fillers: []string{string(owner)}, object: &ciliumv2.CiliumEndpoint{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: name, UID: p.uid("CiliumEndpoint", w.namespace, name), Generation: 1,
			CreationTimestamp: after(2*time.Minute + 10*time.Second), Labels: podLabels(w),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: owner}},
		},
		Status: ciliumv2.CiliumEndpointStatus{
			ID: int64(host*13 + 7), State: ciliumv2.EndpointReady,
			ExternalIdentifiers: ciliumv2.EndpointIdentifiers{
				CNIAttachmentID: sandbox + ":eth0", ContainerID: sandbox,
				K8sNamespace: w.namespace, K8sPodName: name, PodName: w.namespace + "/" + name,
			},
			Health:   ciliumv2.EndpointHealth{BPF: "OK", Connected: true, OverallHealth: "OK", Policy: "OK"},
			Identity: &ciliumv2.EndpointIdentity{ID: w.identity, Labels: p.labelList(w)},
			Networking: &ciliumv2.EndpointNetworking{
				Addressing: []ciliumv2.AddressPair{{IPv4: podIP(node, host).String()}},
				NodeIP:     nodeIP(node).String(),
			},
			NamedPorts: []ciliumv2.NamedPort{
				{Name: "admin", Port: portAdmin, Protocol: "TCP"},
				{Name: "http", Port: portHTTP, Protocol: "TCP"},
				{Name: "metrics", Port: portMetrics, Protocol: "TCP"},
			},
		},
	}}
}

// labelList is an identity's labels as a CiliumEndpoint lists them.
func (p *plan) labelList(w *workload) []string {
	var list []string
	for key, value := range maps.All(p.securityLabels(w)) {
		list = append(list, key+"="+value)
	}
	slices.Sort(list)
	return list
}
