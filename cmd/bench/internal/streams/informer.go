// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streams

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const byNode = "node"

// restConfig is what an operator would use: protobuf, and no limit on the rate.
func restConfig(url string) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, ContentConfig: rest.ContentConfig{
		AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		ContentType:        runtime.ContentTypeProtobuf,
	}}
}

// newInformer makes client-go's shared informer of pods, with an index by node.
func newInformer(url string, transform cache.TransformFunc) (cache.SharedIndexInformer, error) {
	client, err := kubernetes.NewForConfig(restConfig(url))
	if err != nil {
		return nil, err
	}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	if transform != nil {
		if err := informer.SetTransform(transform); err != nil {
			return nil, err
		}
	}
	return informer, informer.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
	}})
}

var errNotSynced = errors.New("not synced")

// start runs the informer and waits for its initial state.
func start(ctx context.Context, informer cache.SharedIndexInformer) error {
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errNotSynced
	}
	return nil
}

// trim is the transform of a careful user: of the full type it keeps the fields
// that our slim pod has.
func trim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs},
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return kept, nil
}
