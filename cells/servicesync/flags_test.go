// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// SSYNC-1: an annotation that is neither true nor false has an Event, once for each value, and no other effect.
func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("web", map[string]string{globalAnnotation: "yes"}, nil)
	w.service("api", map[string]string{globalAnnotation: "True", sharedAnnotation: "FALSE"}, nil)
	w.service("last", global, nil)
	w.slice("last-x", "last", nil, "10.0.1.6")
	w.start()
	messages := func() (all []string) {
		list, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=InvalidGlobalAnnotation"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			all = append(all, e.InvolvedObject.Name+": "+e.Message)
		}
		return all
	}
	operatortest.Eventually(t, "it is named", func() bool { return len(messages()) == 1 })
	if want := `web: the annotation service.cilium.io/global is "yes", which is neither true nor false: it counts as false`; messages()[0] != want {
		t.Errorf("%s, want %s", messages()[0], want)
	}
	w.patch("web", `{"metadata":{"labels":{"other":"x"}}}`)
	w.annotate("web", `{"service.cilium.io/global":"true","service.cilium.io/shared":"`+strings.Repeat("x", 1000)+`"}`)
	operatortest.Eventually(t, "another one is named", func() bool { return len(messages()) == 2 })
	for _, m := range messages() {
		if len(m) > 300 {
			t.Errorf("%d characters: %s", len(m), m)
		}
	}
	operatortest.Eventually(t, "others are exported", func() bool { return w.key("last") != nil })
	if w.key("web") != nil {
		t.Error("what is not shared is exported")
	}
}
