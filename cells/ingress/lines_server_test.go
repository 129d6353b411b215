// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// ENV-34; number 5.1 of the contract's tenants.md: an Ingress with 3,000 backends that do not exist costs five lines and five Events.
func TestLinesAreBounded(t *testing.T) {
	w := newWorld(t)
	var paths strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&paths, "      - {path: /%d, pathType: Exact, backend: {service: {name: none-%d, port: {number: 80}}}}\n", i, i)
	}
	w.apply("metadata: {name: many}\nspec:\n  ingressClassName: cilium\n  rules:\n  - host: many.example.com\n    http:\n      paths:\n" + paths.String())
	w.apply(simple("last", "last.example.com", "front"))
	o := w.start()
	w.awaitRoutes(func() *envoytest.Config { return w.dedicated("last") }, "last.example.com", "/ → NS:front:80")
	about := func() (n int, last string) {
		events, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=many"})
		w.must(err)
		for _, e := range events.Items {
			if strings.Contains(e.Message, "and 2995 more such findings") {
				last = e.Message
			}
		}
		return len(events.Items), last
	}
	operatortest.Eventually(t, "it is named how many there are", func() bool { _, last := about(); return last != "" })
	if n, _ := about(); n != 5 {
		t.Errorf("%d Events", n)
	}
	if n := o.Log().Count(`"level":"warning"`, "many"); n != 5 {
		t.Errorf("%d lines", n)
	}
}
