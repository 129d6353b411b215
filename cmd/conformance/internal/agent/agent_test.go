// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agent

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A listener is at the addresses of its Service, at those ports that are meant.
func TestAddresses(t *testing.T) {
	svc := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}, {Port: 8080}}}}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "127.1.2.3"}, {Hostname: "x"}}
	if got := addresses(svc, []int{8080}); !slices.Equal(got, []string{"127.1.2.3:8080"}) {
		t.Error(got)
	}
	if got := addresses(svc, nil); len(got) != 2 {
		t.Error(got)
	}
}
