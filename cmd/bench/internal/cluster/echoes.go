// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// echoKind is what echoes are: small, and of a definition, as identities are. The operator of the bench has no use for them.
var echoKind = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumcidrgroups"}

// echoEvery is how many pods there are for each that is echoed: few enough that the API server has little more to do.
const echoEvery = 10

// echoes are objects that the bench makes as soon as its watch shows a pod, one for each. That is the least that an operator has
// to do, on the same API server and the same cores at the same time.
type echoes struct {
	plane *plane
	todo  chan pod
	made  *sightings[string] // by key of the pod
}

// echo makes an object for each of these pods, until ctx is done.
func (p *plane) echo(ctx context.Context, all []pod) (*echoes, error) {
	e := &echoes{plane: p, todo: make(chan pod, len(all)), made: newSightings[string]()}
	if err := p.followKind(ctx, echoKind, func(_ watch.EventType, echo *unstructured.Unstructured) {
		e.made.record(time.Now(), strings.Replace(echo.GetName(), ".", "/", 1))
	}); err != nil {
		return nil, err
	}
	waiting := make(map[string]pod, len(all))
	for _, pod := range all {
		waiting[pod.key()] = pod
	}
	err := p.follow(ctx, listWatch(p.core.CoreV1().Pods(""), metav1.ListOptions{LabelSelector: byBench}), func(_ watch.EventType, obj runtime.Object) {
		seen := obj.(*corev1.Pod)
		key := seen.Namespace + "/" + seen.Name
		if pod, ok := waiting[key]; ok {
			delete(waiting, key)
			e.todo <- pod // it holds all of them
		}
	})
	if err != nil {
		return nil, err
	}
	for range workers {
		go e.work(ctx)
	}
	return e, nil
}

func (e *echoes) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case pod := <-e.todo:
			if err := e.create(ctx, pod); err != nil && ctx.Err() == nil {
				e.plane.fail(fmt.Errorf("echo of pod %s: %w", pod.key(), err))
				return
			}
		}
	}
}

func (e *echoes) create(ctx context.Context, of pod) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": echoKind.GroupVersion().String(), "kind": "CiliumCIDRGroup",
		"metadata": map[string]any{"name": of.namespace + "." + of.name},
		"spec":     map[string]any{"externalCIDRs": []any{"192.0.2.0/24"}},
	}}
	_, err := e.plane.client.Resource(echoKind).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// delays are how long after their pods the echoes were there.
func (e *echoes) delays(ctx context.Context, pods *pods, all []pod) ([]float64, error) {
	keys := make([]string, len(all))
	for i, pod := range all {
		keys[i] = pod.key()
	}
	causes, err := pods.made.wait(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	effects, err := e.made.wait(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("echoes: %w", err)
	}
	return delays(causes, effects), nil
}

// everyTenth are the pods that are echoed.
func everyTenth(all []pod) (some []pod) {
	for i := 0; i < len(all); i += echoEvery {
		some = append(some, all[i])
	}
	return some
}
