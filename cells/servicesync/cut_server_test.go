// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// SSYNC-27, K8S-24: the key of a Service that gets larger than the large objects of its namespace have memory for stays as it is, and an Event says so. It
// follows once another one has gone.
func TestLargeServices(t *testing.T) {
	w := newWorld(t)
	var ports []corev1.ServicePort
	for i := range 1000 { // of 64 bytes
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprintf("p%04d", i), Port: int32(i + 1), Protocol: corev1.ProtocolTCP})
	}
	w.service("first", global, func(s *corev1.Service) { s.Spec.Ports = ports })
	second := w.service("second", global, nil)
	w.slice("second-1", "second", nil, "10.0.0.1")
	o := operatortest.Setup{Memory: 14 * 96 << 10}.Start(t, cell.Set(kvstore.Cell, Cell), w.Kubeconfig(), w.args("cluster1", "1")...)
	operatortest.Eventually(t, "the large one has its key", func() bool { return strings.Contains(w.value("first"), "p0999") })
	was := w.json(second, `"10.0.0.1":{"http":{"Protocol":"TCP","Port":8080}}`)
	w.awaitValue("second", was)
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"ports": ports}})
	if err != nil {
		t.Fatal(err)
	}
	w.patch("second", string(text))
	operatortest.Eventually(t, "an Event says so", func() bool {
		events, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ServiceTooLarge"})
		if err != nil {
			t.Fatal(err)
		}
		return len(events.Items) == 1 && events.Items[0].InvolvedObject.Name == "second" && strings.Contains(events.Items[0].Message, "GOMEMLIMIT")
	})
	w.annotate("second", `{"x":"y"}`)
	time.Sleep(time.Second) // nothing is to happen
	if got := w.value("second"); got != was {
		t.Errorf("the key is %q", got)
	}
	w.deleteService("first")
	operatortest.Eventually(t, "the key follows", func() bool { return strings.Contains(w.value("second"), "p0999") && w.key("first") == nil })
	w.CheckHealthy(o)
}
