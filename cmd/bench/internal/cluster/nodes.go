// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

var ciliumNodes = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}

// nodes knows when each CiliumNode got its CIDR, as a watch tells it.
type nodes struct {
	plane *plane
	stop  func()

	mu     sync.Mutex
	all    map[string]time.Time // since when it has a CIDR; zero: it has none
	change chan struct{}
}

func (p *plane) watchNodes(ctx context.Context) (*nodes, error) {
	ctx, cancel := context.WithCancel(ctx)
	n := &nodes{plane: p, stop: cancel, all: map[string]time.Time{}, change: make(chan struct{})}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(p.client, 0).ForResource(ciliumNodes).Informer()
	handle := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.handleNode(obj.(*unstructured.Unstructured)) },
		UpdateFunc: func(_, obj any) { n.handleNode(obj.(*unstructured.Unstructured)) },
	}
	if _, err := informer.AddEventHandler(handle); err != nil {
		cancel()
		return nil, err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		cancel()
		return nil, context.Cause(ctx)
	}
	return n, nil
}

func (n *nodes) handleNode(node *unstructured.Unstructured) {
	n.mu.Lock()
	defer n.mu.Unlock()
	cidrs, _, _ := unstructured.NestedStringSlice(node.Object, "spec", "ipam", "podCIDRs")
	at, known := n.all[node.GetName()]
	if len(cidrs) > 0 && at.IsZero() {
		at = time.Now()
	} else if known {
		return
	}
	n.all[node.GetName()] = at
	close(n.change)
	n.change = make(chan struct{})
}

// served returns when all nodes have a CIDR, and when the last one got it.
func (n *nodes) served(ctx context.Context) (last time.Time, count int, err error) {
	for {
		n.mu.Lock()
		last, count, missing := time.Time{}, len(n.all), 0
		for _, at := range n.all {
			if at.IsZero() {
				missing++
			} else if at.After(last) {
				last = at
			}
		}
		change := n.change
		n.mu.Unlock()
		if missing == 0 {
			return last, count, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return last, count, context.Cause(ctx)
		}
	}
}

// probe makes a node, and returns when it has its CIDR, with how long that took.
func (n *nodes) probe(ctx context.Context, name string) (time.Duration, error) {
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
	began := time.Now()
	if _, err := n.plane.client.Resource(ciliumNodes).Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	for {
		n.mu.Lock()
		at, change := n.all[name], n.change
		n.mu.Unlock()
		if !at.IsZero() {
			return at.Sub(began), nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
