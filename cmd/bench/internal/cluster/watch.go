// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

var (
	ciliumEndpoints      = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumendpoints"}
	ciliumIdentities     = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumidentities"}
	ciliumEndpointSlices = schema.GroupVersionResource{Group: "cilium.io", Version: "v2alpha1", Resource: "ciliumendpointslices"}
)

// follow tells of each object that is there, and then of every event, one at a
// time and in order, until ctx is done. It returns when the watch is open. A
// watch that is lost cancels ctx, for times would be missing.
func (p *plane) follow(ctx context.Context, from *cache.ListWatch, handle func(watch.EventType, runtime.Object)) error {
	list, err := from.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := meta.EachListItem(list, func(obj runtime.Object) error {
		handle(watch.Added, obj)
		return nil
	}); err != nil {
		return err
	}
	at, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, at.GetResourceVersion(), from)
	if err != nil {
		return err
	}
	go func() {
		for event := range watcher.ResultChan() {
			if event.Type == watch.Error {
				p.fail(fmt.Errorf("a watch of the bench was lost: %v", event.Object))
				return
			}
			handle(event.Type, event.Object)
		}
		if ctx.Err() == nil {
			p.fail(errors.New("a watch of the bench has ended"))
		}
	}()
	return nil
}

// lister is a client of a kind, whose lists are L.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// listWatch lists and watches those objects of a kind that the selectors match.
func listWatch[L runtime.Object](client lister[L], only metav1.ListOptions) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = only.LabelSelector, only.FieldSelector
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = only.LabelSelector, only.FieldSelector
			return client.Watch(ctx, o)
		},
	}
}

// followKind follows all objects of a kind of custom resources.
func (p *plane) followKind(ctx context.Context, kind schema.GroupVersionResource, handle func(watch.EventType, *unstructured.Unstructured)) error {
	err := p.follow(ctx, listWatch(p.client.Resource(kind), metav1.ListOptions{}), func(event watch.EventType, obj runtime.Object) { handle(event, obj.(*unstructured.Unstructured)) })
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind.Resource, err)
	}
	return nil
}

// watchLabel tells when a label of a namespace had each of its values.
func (p *plane) watchLabel(ctx context.Context, namespace, label string) (*sightings[string], error) {
	values := newSightings[string]()
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, namespace).String()}
	return values, p.follow(ctx, listWatch(p.core.CoreV1().Namespaces(), only), func(_ watch.EventType, obj runtime.Object) {
		values.record(time.Now(), obj.(*corev1.Namespace).Labels[label])
	})
}
