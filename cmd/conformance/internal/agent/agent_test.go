// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agent

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A port is at the addresses of its Service that are no host names.
func TestAddresses(t *testing.T) {
	svc := &corev1.Service{}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "127.1.2.3"}, {Hostname: "x"}}
	if got := addresses(svc, corev1.ServicePort{Port: 8080}); !slices.Equal(got, []string{"127.1.2.3:8080"}) {
		t.Error(got)
	}
}
