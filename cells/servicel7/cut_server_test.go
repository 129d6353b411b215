// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// L7S-9, K8S-24: a Service that comes when the large objects of its namespace have no more memory is not served, and says so. It is once another one
// has gone.
func TestLargeServices(t *testing.T) {
	w := newWorld(t)
	large := func(name string) {
		t.Helper()
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: enabled}}
		for i := range 1000 { // of 64 bytes
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%04d", i), Port: int32(i + 1)})
		}
		if _, err := w.Core.CoreV1().Services(w.Namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	large("first")
	o := operatortest.Setup{Memory: 14 * 96 << 10}.Start(t, Cell, w.Kubeconfig(), "--loadbalancer-l7=envoy", "--cilium-release=1.19")
	w.awaitConfig("first")
	large("second")
	operatortest.Eventually(t, "an Event says that it is left out", func() bool { return w.event("LeftOut", "second") })
	if w.config("second") != nil || !strings.Contains(o.Degraded("servicel7"), "GOMEMLIMIT") {
		t.Errorf("it is served; health says %q", o.Degraded("servicel7"))
	}
	if err := w.Core.CoreV1().Services(w.Namespace).Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitConfig("second")
	w.CheckHealthy(o)
}
