// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const (
	agentTaint  = "node.cilium.io/agent-not-ready"
	ciliumGroup = "cilium.io"
)

var (
	nodes           = corev1.SchemeGroupVersion.WithResource("nodes")
	services        = corev1.SchemeGroupVersion.WithResource("services")
	secretResource  = corev1.SchemeGroupVersion.WithResource("secrets")
	ingressResource = networkingv1.SchemeGroupVersion.WithResource("ingresses")
	gatewayResource = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	routeResource   = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	envoyConfigs    = schema.GroupVersionResource{Group: ciliumGroup, Version: "v2", Resource: "ciliumenvoyconfigs"}
	ciliumNodes     = schema.GroupVersionResource{Group: ciliumGroup, Version: "v2", Resource: "ciliumnodes"}
	identities      = schema.GroupVersionResource{Group: ciliumGroup, Version: "v2", Resource: "ciliumidentities"}
	endpointSlices  = schema.GroupVersionResource{Group: ciliumGroup, Version: "v2alpha1", Resource: "ciliumendpointslices"}
	definitions     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// results are what the operator makes of the loaded objects, in the order in which they are shown.
func results(loaded []*unstructured.Unstructured) []result {
	pods := podsOf(loaded)
	return []result{
		{"the kinds of cilium.io are registered", []string{"KINDS"}, registered},
		{"every node has its pod CIDRs", []string{"NODE", "POD CIDRS"}, podCIDRs},
		{"nodes with a ready agent are schedulable", []string{"NODE", "TAINTS LOADED", "TAINTS NOW", "NETWORK UNAVAILABLE"}, schedulable(loaded)},
		{"every set of labels has an identity", []string{"IDENTITY", "NAMESPACE", "APP"}, identityOfEach(pods)},
		{"every pod is in a slice", []string{"SLICE", "NAMESPACE", "PODS"}, sliceOfEach(pods)},
		{"every LoadBalancer Service has its addresses", []string{"SERVICE", "NAMESPACE", "ADDRESSES"}, addresses},
		{"every Ingress is programmed", []string{"INGRESS", "NAMESPACE", "ADDRESSES", "HOSTS", "CERTIFICATES"}, ingresses},
		{"every Gateway is programmed", []string{"GATEWAY", "NAMESPACE", "ADDRESSES", "HOSTS"}, gateways},
		{"every HTTPRoute has its status", []string{"HTTPROUTE", "NAMESPACE", "ACCEPTED", "MESSAGE"}, routes},
	}
}

func list(ctx context.Context, client dynamic.Interface, of schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	all, err := client.Resource(of).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", of.Resource, err)
	}
	return all.Items, nil
}

// registered counts the kinds of cilium.io.
func registered(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
	items, err := list(ctx, client, definitions)
	count := 0
	for _, item := range items {
		if group, _, _ := unstructured.NestedString(item.Object, "spec", "group"); group == ciliumGroup {
			count++
		}
	}
	return [][]string{{strconv.Itoa(count)}}, "", err
}

func podCIDRs(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
	items, err := list(ctx, client, ciliumNodes)
	var without []string
	for _, item := range items {
		cidrs, _, _ := unstructured.NestedStringSlice(item.Object, "spec", "ipam", "podCIDRs")
		rows = append(rows, []string{item.GetName(), strings.Join(cidrs, ", ")})
		if len(cidrs) == 0 {
			without = append(without, item.GetName())
		}
	}
	return rows, strings.Join(without, ", "), err
}

// schedulable shows the taints of nodes before and after their agent was seen, and their condition.
func schedulable(loaded []*unstructured.Unstructured) func(context.Context, dynamic.Interface) ([][]string, string, error) {
	before := map[string]string{}
	for _, object := range loaded {
		if object.GetKind() == "Node" {
			before[object.GetName()], _ = taintsOf(object)
		}
	}
	return func(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
		items, err := list(ctx, client, nodes)
		var waiting []string
		for i := range items {
			name := items[i].GetName()
			taints, waits := taintsOf(&items[i])
			condition := networkUnavailable(&items[i])
			rows = append(rows, []string{name, before[name], taints, condition})
			if waits || condition == "" {
				waiting = append(waiting, name)
			}
		}
		return rows, strings.Join(waiting, ", "), err
	}
}

// taintsOf are the taints of a node, and whether the agent's is among them.
func taintsOf(object *unstructured.Unstructured) (text string, waits bool) {
	var node corev1.Node
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &node); err != nil {
		return err.Error(), true
	}
	var keys []string
	for _, t := range node.Spec.Taints {
		keys = append(keys, t.Key)
	}
	if len(keys) == 0 {
		return "-", false
	}
	return strings.Join(keys, ", "), slices.Contains(keys, agentTaint)
}

func networkUnavailable(object *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == string(corev1.NodeNetworkUnavailable) {
			return fmt.Sprintf("%v (%v)", c["status"], c["reason"])
		}
	}
	return ""
}

// pod is a loaded pod with an identity of its own.
type pod struct{ namespace, name, labels string }

// podsOf are the loaded pods that are not in the network of their node.
func podsOf(loaded []*unstructured.Unstructured) (pods []pod) {
	for _, object := range loaded {
		host, _, _ := unstructured.NestedBool(object.Object, "spec", "hostNetwork")
		if object.GetKind() == "Pod" && !host {
			pods = append(pods, pod{object.GetNamespace(), object.GetName(), labels.Set(object.GetLabels()).String()})
		}
	}
	return pods
}

func identityOfEach(pods []pod) func(context.Context, dynamic.Interface) ([][]string, string, error) {
	sets := map[string]bool{}
	for _, p := range pods {
		sets[p.namespace+" "+p.labels] = true
	}
	return func(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
		items, err := list(ctx, client, identities)
		for _, item := range items {
			security, _, _ := unstructured.NestedStringMap(item.Object, "security-labels")
			rows = append(rows, []string{item.GetName(), security["k8s:io.kubernetes.pod.namespace"], security["k8s:app.kubernetes.io/name"]})
		}
		return rows, lacks(len(sets)-len(rows), "identities"), err
	}
}

func sliceOfEach(pods []pod) func(context.Context, dynamic.Interface) ([][]string, string, error) {
	return func(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
		items, err := list(ctx, client, endpointSlices)
		count := 0
		for _, item := range items {
			endpoints, _, _ := unstructured.NestedSlice(item.Object, "endpoints")
			namespace, _, _ := unstructured.NestedString(item.Object, "namespace")
			var names []string
			for _, e := range endpoints {
				if e, _ := e.(map[string]any); e != nil {
					names = append(names, fmt.Sprint(e["name"]))
				}
			}
			count += len(names)
			rows = append(rows, []string{item.GetName(), namespace, strings.Join(names, ", ")})
		}
		return rows, lacks(len(pods)-count, "pods"), err
	}
}

func addresses(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
	items, err := list(ctx, client, services)
	var without []string
	for _, item := range items {
		if kind, _, _ := unstructured.NestedString(item.Object, "spec", "type"); kind != string(corev1.ServiceTypeLoadBalancer) {
			continue
		}
		ips := addressesOf(&item)
		rows = append(rows, []string{item.GetName(), item.GetNamespace(), strings.Join(ips, ", ")})
		if len(ips) == 0 {
			without = append(without, item.GetName())
		}
	}
	return rows, strings.Join(without, ", "), err
}

// addressesOf are the addresses in the status of a Service or an Ingress.
func addressesOf(object *unstructured.Unstructured) (ips []string) {
	all, _, _ := unstructured.NestedSlice(object.Object, "status", "loadBalancer", "ingress")
	for _, e := range all {
		if e, _ := e.(map[string]any); e != nil {
			ips = append(ips, fmt.Sprint(e["ip"]))
		}
	}
	return ips
}

// ingresses shows the Ingresses with what Envoy serves for them, and the copies of their certificates.
func ingresses(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
	items, err := list(ctx, client, ingressResource)
	if err != nil {
		return nil, "", err
	}
	configs, err := list(ctx, client, envoyConfigs)
	if err != nil {
		return nil, "", err
	}
	secrets, err := list(ctx, client, secretResource)
	if err != nil {
		return nil, "", err
	}
	var waiting []string
	for _, item := range items {
		ips := addressesOf(&item)
		at := slices.IndexFunc(configs, func(c unstructured.Unstructured) bool {
			return c.GetNamespace() == item.GetNamespace() && c.GetName() == "cilium-ingress-"+item.GetNamespace()+"-"+item.GetName()
		})
		copies := copiesFrom(secrets, item.GetNamespace())
		if len(ips) == 0 || at < 0 || len(copies) == 0 {
			waiting = append(waiting, item.GetName())
			continue
		}
		rows = append(rows, []string{item.GetName(), item.GetNamespace(), strings.Join(ips, ", "), strings.Join(hostsOf(&configs[at], "listener-secure"), ", "), strings.Join(copies, ", ")})
	}
	return rows, strings.Join(waiting, ", "), nil
}

// hostsOf are the virtual hosts of a route table of a CiliumEnvoyConfig.
func hostsOf(config *unstructured.Unstructured, table string) (hosts []string) {
	resources, _, _ := unstructured.NestedSlice(config.Object, "spec", "resources")
	for _, r := range resources {
		r, _ := r.(map[string]any)
		virtual, _, _ := unstructured.NestedSlice(r, "virtualHosts")
		if r["name"] != table {
			continue
		}
		for _, h := range virtual {
			if h, _ := h.(map[string]any); h != nil {
				hosts = append(hosts, fmt.Sprint(h["name"]))
			}
		}
	}
	return hosts
}

// gateways shows the Gateways with their addresses, and what Envoy serves for them.
func gateways(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
	items, err := list(ctx, client, gatewayResource)
	if err != nil {
		return nil, "", err
	}
	configs, err := list(ctx, client, envoyConfigs)
	if err != nil {
		return nil, "", err
	}
	var waiting []string
	for _, item := range items {
		var addresses []string
		all, _, _ := unstructured.NestedSlice(item.Object, "status", "addresses")
		for _, a := range all {
			if a, _ := a.(map[string]any); a != nil {
				addresses = append(addresses, fmt.Sprint(a["value"]))
			}
		}
		at := slices.IndexFunc(configs, func(c unstructured.Unstructured) bool {
			return c.GetNamespace() == item.GetNamespace() && c.GetName() == "cilium-gateway-"+item.GetName()
		})
		if programmed := condition(item.Object, "Programmed", "status"); programmed["status"] != "True" || at < 0 {
			waiting = append(waiting, item.GetName())
			continue
		}
		rows = append(rows, []string{item.GetName(), item.GetNamespace(), strings.Join(addresses, ", "), strings.Join(hostsOf(&configs[at], "listener-insecure"), ", ")})
	}
	return rows, strings.Join(waiting, ", "), nil
}

// routes shows the HTTPRoutes, and why one is not accepted.
func routes(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
	items, err := list(ctx, client, routeResource)
	var waiting []string
	for _, item := range items {
		parents, _, _ := unstructured.NestedSlice(item.Object, "status", "parents")
		if len(parents) == 0 {
			waiting = append(waiting, item.GetName())
			continue
		}
		parent, _ := parents[0].(map[string]any)
		accepted := condition(parent, "Accepted")
		rows = append(rows, []string{item.GetName(), item.GetNamespace(), fmt.Sprint(accepted["status"]), fmt.Sprint(accepted["message"])})
	}
	return rows, strings.Join(waiting, ", "), err
}

// condition is one of the conditions in a field of an object.
func condition(of map[string]any, kind string, field ...string) map[string]any {
	all, _, _ := unstructured.NestedSlice(of, append(field, "conditions")...)
	for _, c := range all {
		if c, _ := c.(map[string]any); c["type"] == kind {
			return c
		}
	}
	return nil
}

// copiesFrom are the copies of Secrets of a namespace.
func copiesFrom(secrets []unstructured.Unstructured, namespace string) (names []string) {
	for _, s := range secrets {
		if s.GetLabels()["secretsync.cilium.io/owning-secret-namespace"] == namespace {
			names = append(names, s.GetNamespace()+"/"+s.GetName())
		}
	}
	return names
}

func lacks(n int, what string) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, what)
}
