// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What webhooks do to requests of one user, and of no other.
func TestWebhooks(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	mine := newClient(t, c.UserConfig(t, "admitted", "system:masters")).CoreV1().ConfigMaps(ns)
	other := newClient(t, c.AdminConfig(t)).CoreV1().ConfigMaps(ns)
	match := AdmissionMatch{Resources: []string{"configmaps"}, Groups: []string{"core"}, Users: []string{"admitted"}}

	t.Run("reject", func(t *testing.T) {
		w := c.Admit(t, Admission{Match: match, Every: 2, Reject: &Reject{Codes: []int{429}, Message: "not now"}})
		for i, name := range []string{"a", "b", "c"} {
			_, err := mine.Create(t.Context(), newConfigMap("reject-"+name), metav1.CreateOptions{})
			if rejected := i%2 == 0; rejected != apierrors.IsTooManyRequests(err) || rejected != (err != nil && strings.Contains(err.Error(), "not now")) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := other.Create(t.Context(), newConfigMap("reject-other"), metav1.CreateOptions{}); err != nil {
			t.Errorf("another user: %v", err)
		}
		if hits := w.Hits(t); hits != 2 {
			t.Errorf("%d hits", hits)
		}
		w.Remove(t)
		if _, err := mine.Create(t.Context(), newConfigMap("reject-after"), metav1.CreateOptions{}); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
	t.Run("rewrite", func(t *testing.T) {
		c.Admit(t, Admission{
			Match: match, Drop: []string{"/data/gone"}, Set: map[string]any{"/metadata/labels/added": "yes"},
			Patch: json.RawMessage(`[{"op":"replace","path":"/data/kept","value":"rewritten"}]`),
		})
		object := newConfigMap("rewrite")
		object.Data = map[string]string{"gone": "1", "kept": "2"}
		made, err := mine.Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(made.Data) != 1 || made.Data["kept"] != "rewritten" || made.Labels["added"] != "yes" {
			t.Errorf("made %v, %v", made.Data, made.Labels)
		}
	})
	t.Run("hang", func(t *testing.T) {
		w := c.Admit(t, Admission{Match: match, Times: 1, Hang: &Hang{For: -1, Patience: time.Second}})
		if _, err := mine.Create(t.Context(), newConfigMap("hang"), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("a webhook that hangs: %v", err)
		}
		w.Remove(t)
		w = c.Admit(t, Admission{Match: match, Times: 1, Hang: &Hang{For: -1, Patience: 30 * time.Second}})
		released := make(chan error)
		go func() {
			_, err := mine.Create(context.WithoutCancel(t.Context()), newConfigMap("hang-released"), metav1.CreateOptions{})
			released <- err
		}()
		until(t, "the webhook hangs", func(context.Context) bool { return w.Hits(t) == 1 })
		w.Remove(t)
		if err := <-released; err != nil {
			t.Errorf("a request that was released: %v", err)
		}
		c.Admit(t, Admission{Match: match, Hang: &Hang{For: -1, FailOpen: true}})
		if _, err := mine.Create(t.Context(), newConfigMap("hang-open"), metav1.CreateOptions{}); err != nil {
			t.Errorf("a webhook that may fail: %v", err)
		}
	})
}
