// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pods

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// publish writes an EndpointSlice for each Service that selects pods, as the controller manager does.
func (r *Runner) publish(ctx context.Context, pods []*corev1.Pod) error {
	all, err := r.services.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, svc := range all {
		if len(svc.Spec.Selector) == 0 || svc.DeletionTimestamp != nil {
			continue
		}
		if err := r.write(ctx, endpointSlice(svc, pods)); err != nil {
			return fmt.Errorf("writing the EndpointSlice of %s/%s: %w", svc.Namespace, svc.Name, err)
		}
	}
	return nil
}

// write creates or updates an EndpointSlice that is not as it should be.
func (r *Runner) write(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	to := r.Client.DiscoveryV1().EndpointSlices(s.Namespace)
	has, err := r.slices.EndpointSlices(s.Namespace).Get(s.Name)
	switch {
	case apierrors.IsNotFound(err):
		if _, err = to.Create(ctx, s, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return nil // it comes
		}
		return err
	case err != nil:
		return err
	case equality.Semantic.DeepEqual(has.Endpoints, s.Endpoints) && equality.Semantic.DeepEqual(has.Ports, s.Ports):
		return nil
	}
	s.ResourceVersion = has.ResourceVersion
	_, err = to.Update(ctx, s, metav1.UpdateOptions{})
	return err
}

// endpointSlice is that of a Service with the pods that it selects.
func endpointSlice(svc *corev1.Service, pods []*corev1.Pod) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: svc.Name + "-pods", Namespace: svc.Namespace,
			Labels:          map[string]string{discoveryv1.LabelServiceName: svc.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(svc, corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	selects := labels.SelectorFromSet(svc.Spec.Selector)
	for _, pod := range pods {
		if pod.Namespace != svc.Namespace || pod.Status.PodIP == "" || pod.DeletionTimestamp != nil || !selects.Matches(labels.Set(pod.Labels)) {
			continue
		}
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{pod.Status.PodIP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			NodeName: &pod.Spec.NodeName, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		})
	}
	slices.SortFunc(s.Endpoints, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
	for _, p := range svc.Spec.Ports {
		number := p.TargetPort.IntVal
		if p.TargetPort.Type == intstr.Int && number == 0 {
			number = p.Port
		}
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &number, Protocol: &p.Protocol})
	}
	return s
}
