// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
)

// atOnce makes pods in one stroke: as the API server stores them, straight into
// etcd. Through the API server a thousand take it as long as what they are there
// to measure. Each has a revision of its own, as everything has that the API server
// writes: a watch that is cut short between two of one revision would miss one.
func (m *pods) atOnce(ctx context.Context, all []pod) error {
	made := make([]*corev1.Pod, len(all))
	for i, pod := range all {
		made[i] = pod.stored()
	}
	return m.plane.store(ctx, made)
}

// store writes pods into etcd.
func (p *plane) store(ctx context.Context, all []*corev1.Pod) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: p.info.Etcd.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("make an etcd client: %w", err)
	}
	defer client.Close()
	values := make([]string, len(all))
	for i, pod := range all {
		value, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), pod)
		if err != nil {
			return fmt.Errorf("encode pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		values[i] = string(value)
	}
	return paced(ctx, 0, len(all), func(ctx context.Context, i int) error {
		_, err := client.Put(ctx, "/registry/pods/"+all[i].Namespace+"/"+all[i].Name, values[i])
		return err
	})
}

// stored is the pod as the API server stores it.
func (p pod) stored() *corev1.Pod {
	made := p.resource()
	made.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	made.UID, made.CreationTimestamp, made.Generation = uuid.NewUUID(), metav1.Now(), 1
	made.Status.Phase = corev1.PodPending
	return made
}
