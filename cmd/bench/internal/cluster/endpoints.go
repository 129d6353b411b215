// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// endpoint is a CiliumEndpoint of a pod of the load.
type endpoint struct {
	namespace, name, uid string
	ip, node             string // addresses
	identity             int64
}

func (e endpoint) key() string { return e.namespace + "/" + e.name }

func keys(all []endpoint) []string {
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.key()
	}
	return names
}

// endpoints makes CiliumEndpoints, as agents do, and knows when each came and
// went, as a watch tells it.
type endpoints struct {
	plane      *plane
	came, went *sightings[string]
}

func (p *plane) watchEndpoints(ctx context.Context) (*endpoints, error) {
	m := &endpoints{plane: p, came: newSightings[string](), went: newSightings[string]()}
	return m, p.followKind(ctx, ciliumEndpoints, func(event watch.EventType, e *unstructured.Unstructured) {
		at, key := time.Now(), e.GetNamespace()+"/"+e.GetName()
		if event == watch.Deleted {
			m.went.record(at, key)
		} else {
			m.came.record(at, key)
		}
	})
}

func (m *endpoints) begin() {
	m.came.forget()
	m.went.forget()
}

// ofPods plans the endpoints of the load's pods, namespace after namespace and
// in each workload after workload, which is what rollouts come to. It takes
// whole namespaces until there are at least so many. The identities of all
// label sets are there.
func (m *endpoints) ofPods(ctx context.Context, atLeast int, identities *identities) ([]endpoint, error) {
	namespaces, err := m.plane.core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []endpoint
	for _, ns := range namespaces.Items {
		if len(all) >= atLeast {
			break
		}
		pods, err := m.plane.core.CoreV1().Pods(ns.Name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		for i := range pods.Items {
			e, err := endpointOf(&pods.Items[i], ns.Labels, identities)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
	}
	return all, nil
}

func endpointOf(pod *corev1.Pod, ofNamespace map[string]string, identities *identities) (endpoint, error) {
	number := identities.number(labelSet(securityLabels(pod.Namespace, ofNamespace, pod.Labels, pod.Spec.Containers)))
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return endpoint{}, fmt.Errorf("pod %s/%s of the load has no identity", pod.Namespace, pod.Name)
	}
	return endpoint{pod.Namespace, pod.Name, string(pod.UID), pod.Status.PodIP, pod.Status.HostIP, id}, nil
}

// make makes endpoints, so many a second.
func (m *endpoints) make(ctx context.Context, perSecond float64, all []endpoint) error {
	return paced(ctx, perSecond, len(all), func(ctx context.Context, i int) error {
		_, err := m.plane.client.Resource(ciliumEndpoints).Namespace(all[i].namespace).Create(ctx, all[i].resource(), metav1.CreateOptions{})
		return err
	})
}

// remove removes endpoints, so many a second.
func (m *endpoints) remove(ctx context.Context, perSecond float64, all []endpoint) error {
	return paced(ctx, perSecond, len(all), func(ctx context.Context, i int) error {
		return m.plane.client.Resource(ciliumEndpoints).Namespace(all[i].namespace).Delete(ctx, all[i].name, metav1.DeleteOptions{})
	})
}

// resource is the endpoint as an agent writes it, but for its labels and what it
// says of health.
func (e endpoint) resource() *unstructured.Unstructured {
	owner := map[string]any{"apiVersion": "v1", "kind": "Pod", "name": e.name, "uid": e.uid}
	ports := []any{
		map[string]any{"name": "http", "port": int64(8080), "protocol": "TCP"},
		map[string]any{"name": "metrics", "port": int64(9090), "protocol": "TCP"},
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint",
		"metadata": map[string]any{"namespace": e.namespace, "name": e.name, "ownerReferences": []any{owner}},
		"status": map[string]any{
			"id": int64(7), "state": "ready",
			"external-identifiers": map[string]any{"k8s-namespace": e.namespace, "k8s-pod-name": e.name, "pod-name": e.key()},
			"identity":             map[string]any{"id": e.identity},
			"networking": map[string]any{
				"addressing": []any{map[string]any{"ipv4": e.ip}}, "node": e.node,
			},
			"named-ports": ports,
		},
	}}
}
