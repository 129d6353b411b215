// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
)

// byBench marks what the bench makes.
const byBench = "bench.skep.io/made"

// pod is one that the bench makes.
type pod struct {
	namespace, name string
	labels          map[string]string
	set             string // of its identity's labels
}

func (p pod) key() string { return p.namespace + "/" + p.name }

// pods makes pods through the API server, as controllers do, and knows when each
// was there, as a watch tells it.
type pods struct {
	plane      *plane
	namespaces map[string]map[string]string // and their labels
	made       *sightings[string]           // pods, by key
	addressed  *sightings[string]           // those with an address, by key
}

func (p *plane) watchPods(ctx context.Context) (*pods, error) {
	m := &pods{plane: p, namespaces: map[string]map[string]string{}, made: newSightings[string](), addressed: newSightings[string]()}
	return m, p.follow(ctx, listWatch(p.core.CoreV1().Pods(""), metav1.ListOptions{LabelSelector: byBench}), func(event watch.EventType, obj runtime.Object) {
		at, pod := time.Now(), obj.(*corev1.Pod)
		key := pod.Namespace + "/" + pod.Name
		m.made.record(at, key)
		if pod.Status.PodIP != "" {
			m.addressed.record(at, key)
		}
	})
}

// makeNamespace returns when pods can be made there.
func (m *pods) makeNamespace(ctx context.Context, name string) error {
	core := m.plane.core.CoreV1()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "bench"}}}
	made, err := core.Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	m.namespaces[name] = made.Labels
	return until(ctx, func() (bool, error) {
		_, err := core.ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// relabel sets a label of a namespace.
func (m *pods) relabel(ctx context.Context, namespace, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
	changed, err := m.plane.core.CoreV1().Namespaces().Patch(ctx, namespace, "application/merge-patch+json", patch, metav1.PatchOptions{})
	if err == nil {
		m.namespaces[namespace] = changed.Labels
	}
	return err
}

// plan names a pod that is to be made. Its app decides its label set.
func (m *pods) plan(namespace, name, app string) pod {
	labels := map[string]string{"app": app, byBench: "pod", "pod-template-hash": "5b7d9c4f6"}
	return pod{namespace: namespace, name: name, labels: labels, set: labelSet(securityLabels(namespace, m.namespaces[namespace], labels, benchContainers))}
}

// benchContainers are those of each pod. Their named port is part of its identity.
var benchContainers = []corev1.Container{{Name: "app", Image: "registry.example.com/apps/bench:v1", Ports: []corev1.ContainerPort{
	{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}}

// resource is the pod as the API server gets it.
func (p pod) resource() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, Labels: maps.Clone(p.labels)},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", AutomountServiceAccountToken: new(false),
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    benchContainers,
		},
	}
}

// make makes pods, so many a second; 0 is as fast as they are taken.
func (m *pods) make(ctx context.Context, perSecond float64, all []pod) error {
	return paced(ctx, perSecond, len(all), func(ctx context.Context, i int) error {
		_, err := m.plane.core.CoreV1().Pods(all[i].namespace).Create(ctx, all[i].resource(), metav1.CreateOptions{})
		return err
	})
}

// workers is how many requests of the bench are in flight at most.
const workers = 32

// paced does something n times, so many times a second; 0 is as fast as it goes.
// It begins in order, catches up after it was held up, and ends with the first
// error.
func paced(ctx context.Context, perSecond float64, n int, do func(ctx context.Context, i int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	began := time.Now()
	workqueue.ParallelizeUntil(ctx, workers, n, func(i int) {
		var err error
		if perSecond > 0 {
			turn := began.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
			err = sleep(ctx, time.Until(turn))
		}
		if err == nil {
			err = do(ctx, i)
		}
		if err != nil {
			fail(err)
		}
	})
	return context.Cause(ctx)
}

// get reads a pod.
func (m *pods) get(ctx context.Context, p pod) (*corev1.Pod, error) {
	return m.plane.core.CoreV1().Pods(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
}
