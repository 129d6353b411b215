// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

func (b Bench) ingresses() pathKind {
	k := pathKind{
		kind: networkingv1.SchemeGroupVersion.WithResource("ingresses"), plural: "Ingresses", counts: b.counts(200, 1000),
		flags:   []string{"--ipam=kubernetes", "--enable-envoy-config", "--enable-ingress-controller", "--kube-proxy-replacement=true", "--ingress-default-lb-mode=shared"},
		prepare: func(context.Context, *plane) error { return nil },
		object:  benchIngress, path: "/spec/rules/0/http/paths/0/path",
	}
	k.written = []schema.GroupVersionResource{coreServices, k.kind}
	if !b.Quick {
		k.recorded = contest.Figures{scaled(path50, 200): 63, scaled(path99, 200): 219}
	}
	return k
}

func (b Bench) ingressesContest() contest.Contest {
	return contest.Contest{
		Name: "ingresses", Title: "Ingresses that share a load balancer",
		Note: "Each Ingress has a host with a path, all with one backend. An edit changes the path of one; twenty are made, a second apart. " +
			"Times are between events of watches of the bench: of the Ingress, and of the CiliumEnvoyConfig that has the path. One round. " +
			"The recorded figures are of 200 Ingresses on two cores.",
		Contestants: contestants, Measures: b.ingresses().measures(),
	}
}

func benchIngress(at int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"name": fmt.Sprint("bench-", at)},
		"spec": map[string]any{"ingressClassName": "cilium", "rules": []any{map[string]any{
			"host": fmt.Sprintf("host-%d.example.com", at),
			"http": map[string]any{"paths": []any{map[string]any{
				"path": fmt.Sprint("/bench-", at), "pathType": "Exact",
				"backend": map[string]any{"service": map[string]any{"name": pathBackend, "port": map[string]any{"number": int64(80)}}},
			}}},
		}}},
	}}
}
