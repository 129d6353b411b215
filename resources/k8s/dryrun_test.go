// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/skep-operator/skep/resources/dryrun"

	"github.com/skep-operator/skep/resources/leading"
)

// In a plan a client reads what it wrote, and nothing but reads and questions
// reaches the server: not even the lease.
func TestPlanReachesNothing(t *testing.T) {
	var arrived seen
	d := openTransport(t, func(c *Config) {
		c.K8sAPIServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
			arrived.note(r)
			if !strings.HasSuffix(r.URL.Path, "/configmaps/there") {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusNotFound)
				answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 404, Reason: metav1.StatusReasonNotFound, Status: "Failure"})
				return
			}
			cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "there", Namespace: "n", UID: "u", ResourceVersion: "7"}}
			cm.APIVersion, cm.Kind = "v1", "ConfigMap"
			answer(w, cm)
		})
	})
	d.plan = dryrun.New(time.Minute)
	lead := &session{guardedTransport: d}
	fence := leading.Unfenced()
	defer fence.Close()
	if err := lead.Open(fence, nil); err != nil {
		t.Fatal(err)
	}
	m := &moduleTransport{guardedTransport: d, module: "m", writer: d.term.Load()}
	c, err := newClient(m, &Permissions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := WithCause(t.Context(), &Cause{Rule: "m rule"})
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	there, made := Ref{Resource: resource, Namespace: "n", Name: "there"}, Ref{Resource: resource, Namespace: "n", Name: "made"}
	set := func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, "new", "data", "key")
	}
	stored, written, err := c.Modify(ctx, there, set)
	if err != nil || !written || stored.GetUID() != "u" {
		t.Fatalf("%v, %t, %v", stored, written, err)
	}
	if _, written, err := c.Modify(ctx, there, set); err != nil || written {
		t.Errorf("what was written is not read: %v", err)
	}
	if err := c.Delete(ctx, there, Preconditions{UID: "u", ResourceVersion: "7"}); !apierrors.IsConflict(err) {
		t.Errorf("a delete of the state before: %v", err)
	}
	if err := c.Delete(ctx, there, Preconditions{UID: "u", ResourceVersion: stored.GetResourceVersion()}); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(ctx, there); !apierrors.IsNotFound(err) {
		t.Errorf("what was deleted is read: %v", err)
	}
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "made", Namespace: "n"}}
	if _, err := c.Create(ctx, resource, cm); err != nil {
		t.Error(err)
	}
	if _, err := c.Create(ctx, resource, cm); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	if u, err := c.Get(ctx, made); err != nil || u.GetUID() == "" {
		t.Errorf("what was created is not read: %v", err)
	}
	leases, err := coordinationclient.NewForConfig(lead.LeaseConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Leases("n").Get(ctx, "l", metav1.GetOptions{}); !errors.Is(err, errPlan) {
		t.Errorf("the lease is read: %v", err)
	}
	for _, r := range arrived.all() {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s has reached the server", r.Method, r.URL)
		}
	}
	if len(arrived.all()) == 0 {
		t.Error("nothing was read")
	}
}
