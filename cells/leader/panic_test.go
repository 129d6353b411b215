// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/leader"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/printable"
)

// fragile is a duty that panics over one of its three objects.
var fragile = cell.Module("test.fragile", "Panics over an object",
	cell.Job("queue", func(d reconcile.Deps) job.Job {
		q := reconcile.NewQueue(d, "check", func(_ context.Context, key slim.Key) error {
			if key.Name == "bad\x1b[31m" {
				panic("boom of " + key.Name)
			}
			return nil
		})
		for _, name := range []string{"a", "bad\x1b[31m", "c"} {
			q.Add(slim.Key{Namespace: "bb", Name: name})
		}
		return q.Job()
	}))

// K7 of the contract's tenants.md, K8S-19: an object whose handling panics is named, with the line, in an Event on the lease, in health and in the book; the others
// are handled. Another panic of the same object is no other Event.
func TestAPanicIsAnEventOnTheLease(t *testing.T) {
	s := newSite(t).unhurried()
	o := operatortest.Setup{Elector: leader.Cell}.Start(t, fragile, s.Kubeconfig(), "--k8s-namespace="+s.Namespace)
	var found []corev1.Event
	operatortest.Eventually(t, "there is an Event", func() bool {
		all, err := s.Core.CoreV1().Events(s.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=HandlingPanicked"})
		if err != nil {
			return false
		}
		found = all.Items
		return len(found) > 0
	})
	e := found[0]
	if of := e.InvolvedObject; len(found) != 1 || of.Kind != "Lease" || of.Name != leaseName || e.Type != corev1.EventTypeWarning {
		t.Errorf("%d Events, of %s %s, %s", len(found), of.Kind, of.Name, e.Type)
	}
	health := o.Degraded("test.fragile")
	for what, text := range map[string]string{"the Event": e.Message, "health": printable.Text(health)} {
		if !strings.Contains(text, `bb/bad\x1b[31m panicked at cells/leader_test/panic_test.go:`) {
			t.Errorf("%s: %q", what, text)
		}
	}
	if n := o.Metric("panics_total", "test.fragile"); n < 1 {
		t.Errorf("%v panics are counted", n)
	}
	for _, name := range []string{"a", "c"} {
		if strings.Contains(health, "bb/"+name) {
			t.Errorf("%s is named, too: %s", name, health)
		}
	}
}
