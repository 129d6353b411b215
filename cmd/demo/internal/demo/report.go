// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

var (
	ciliumNodes = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// node is a row of the table.
type node struct {
	name  string
	cidrs []string
}

// waitForCIDRs returns the nodes when each of them has a CIDR.
func waitForCIDRs(ctx context.Context, client dynamic.Interface) (nodes []node, err error) {
	var without []string
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := client.Resource(ciliumNodes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		nodes, without = rows(list.Items)
		return len(without) == 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for pod CIDRs of %s: %w", strings.Join(without, ", "), err)
	}
	return nodes, nil
}

func rows(items []unstructured.Unstructured) (nodes []node, without []string) {
	for _, item := range items {
		cidrs, _, _ := unstructured.NestedStringSlice(item.Object, "spec", "ipam", "podCIDRs")
		nodes = append(nodes, node{item.GetName(), cidrs})
		if len(cidrs) == 0 {
			without = append(without, item.GetName())
		}
	}
	return nodes, without
}

// registered counts the kinds of cilium.io.
func registered(ctx context.Context, client dynamic.Interface) (int, error) {
	list, err := client.Resource(definitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list definitions: %w", err)
	}
	count := 0
	for _, item := range list.Items {
		if group, _, _ := unstructured.NestedString(item.Object, "spec", "group"); group == ciliumNodes.Group {
			count++
		}
	}
	return count, nil
}

func writeNodes(out io.Writer, nodes []node) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  NODE\tPOD CIDRS")
	for _, n := range nodes {
		fmt.Fprintf(table, "  %s\t%s\n", n.name, strings.Join(n.cidrs, ", "))
	}
	table.Flush()
}
