// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
	"github.com/skep-operator/skep/resources/clustertest/gatewayapi"
)

// routesPerHost keeps a configuration of 5,000 routes below the size that an object may have.
const routesPerHost = 50

func gatewayAPI(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: resource}
}

func (b Bench) routes() pathKind {
	k := pathKind{
		kind: gatewayAPI("httproutes"), plural: "HTTPRoutes", counts: b.counts(300, 1000, 5000), parent: gatewayAPI("gateways"),
		flags:   []string{"--ipam=kubernetes", "--enable-envoy-config", "--enable-gateway-api", "--kube-proxy-replacement=true"},
		prepare: prepareGateway,
		object:  benchRoute, path: "/spec/rules/0/matches/0/path/value",
	}
	k.written = []schema.GroupVersionResource{
		coreServices, {Version: "v1", Resource: "endpoints"}, {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, k.kind, k.parent, gatewayAPI("gatewayclasses"),
	}
	if !b.Quick {
		k.recorded = contest.Figures{scaled(path50, 300): 514, scaled(path99, 300): 906}
	}
	return k
}

func (b Bench) routesContest() contest.Contest {
	return contest.Contest{
		Name: "routes", Title: "HTTPRoutes of one Gateway",
		Note: fmt.Sprintf("Each HTTPRoute has a path of a host, %d share a host, all have one backend. An edit changes the path of one; twenty are made, a second apart. ", routesPerHost) +
			"Times are between events of watches of the bench: of the HTTPRoute, and of the CiliumEnvoyConfig that has the path. One round. " +
			"The recorded figures are of 300 HTTPRoutes on two cores; the start and twenty edits took 15.7 s of CPU.",
		Contestants: contestants, Measures: b.routes().measures(),
	}
}

var definitionKind = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// prepareGateway defines the Gateway API, and makes the Gateway of the routes.
func prepareGateway(ctx context.Context, p *plane) error {
	return prepareGatewayOf(ctx, p, map[string]any{"name": "http", "port": int64(80), "protocol": "HTTP"})
}

// prepareGatewayOf makes the Gateway with these listeners.
func prepareGatewayOf(ctx context.Context, p *plane, listeners ...any) error {
	plurals := []string{"gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants"}
	definitions, err := gatewayapi.Definitions(ctx, "standard", plurals...)
	if err != nil {
		return err
	}
	for i, d := range definitions {
		if _, err := p.client.Resource(definitionKind).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := p.defined(ctx, gatewayAPI(plurals[i])); err != nil {
			return err
		}
	}
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": map[string]any{"name": "bench"},
		"spec": map[string]any{"controllerName": "io.cilium/gateway-controller"},
	}}
	if _, err := p.client.Resource(gatewayAPI("gatewayclasses")).Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	gateway := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": map[string]any{"name": "bench"},
		"spec": map[string]any{"gatewayClassName": "bench", "listeners": listeners},
	}}
	_, err = p.client.Resource(gatewayAPI("gateways")).Namespace(pathNamespace).Create(ctx, gateway, metav1.CreateOptions{})
	return err
}

func benchRoute(at int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": fmt.Sprint("bench-", at)},
		"spec": map[string]any{
			"parentRefs": []any{map[string]any{"name": "bench"}},
			"hostnames":  []any{fmt.Sprintf("host-%d.example.com", at/routesPerHost)},
			"rules": []any{map[string]any{
				"matches":     []any{map[string]any{"path": map[string]any{"type": "Exact", "value": fmt.Sprint("/bench-", at)}}},
				"backendRefs": []any{map[string]any{"name": pathBackend, "port": int64(80)}},
			}},
		},
	}}
}
