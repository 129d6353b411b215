// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// named is a server that has objects by name, each with the owner in a label, and counts requests.
type named struct {
	k8s.Client
	owners   map[string]string
	denied   bool
	requests []string
}

func (n *named) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	n.requests = append(n.requests, "get "+ref.Name)
	owner, exists := n.owners[ref.Name]
	switch {
	case n.denied:
		return nil, &k8s.PermissionError{Permission: "get configmaps", Err: errors.New("no")}
	case !exists:
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	u := &unstructured.Unstructured{}
	u.SetLabels(map[string]string{"of": owner})
	return u, nil
}

func (n *named) Create(_ context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	u := obj.(*unstructured.Unstructured)
	n.requests = append(n.requests, "create "+u.GetName())
	if _, exists := n.owners[u.GetName()]; exists {
		return nil, apierrors.NewAlreadyExists(resource.GroupResource(), u.GetName())
	}
	n.owners[u.GetName()] = "us"
	return u, nil
}

// attempt creates an object, and says what became of it.
func (n *named) attempt(t *testing.T, o *Occupied, name string) string {
	t.Helper()
	n.requests = nil
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "bb", Name: name}}
	ref := k8s.Ref{Resource: configMaps, Namespace: "bb", Name: name}
	err := CreateUnlessOccupied(t.Context(), n, o, slim.Key{Namespace: "bb", Name: "web"}, ref, want, func(u *unstructured.Unstructured) bool { return u.GetLabels()["of"] == "us" })
	text := "created"
	if occupied := new(OccupiedError); errors.As(err, &occupied) {
		text = fmt.Sprintf("occupied for %s, own %t", occupied.Pause, occupied.Own)
	} else if err != nil {
		text = err.Error()
	}
	return fmt.Sprintf("%s: %s", strings.Join(n.requests, ", "), text)
}

// K8S-28: what has a name that others know before is asked for with back-off, whatever comes meanwhile, and created soon after it is free.
func TestOccupied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, o := &named{owners: map[string]string{"a": "them", "ours": "us"}}, &Occupied{}
		of := slim.Key{Namespace: "bb", Name: "web"}
		want := func(name, want string) {
			t.Helper()
			if got := server.attempt(t, o, name); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		want("b", "create b: created")
		want("a", "create a, get a: occupied for 1s, own false")
		want("a", ": occupied for 1s, own false")
		time.Sleep(time.Second)
		want("a", "get a: occupied for 2s, own false")
		requests := 0
		for range 3600 {
			time.Sleep(time.Second)
			server.attempt(t, o, "a")
			requests += len(server.requests)
		}
		if requests > 20 {
			t.Errorf("%d requests in an hour", requests)
		}
		want("ours", "create ours, get ours: occupied for 1s, own true")
		if others := o.Others(of); !slices.Equal(others, []string{"a"}) {
			t.Errorf("others have %q", others)
		}
		delete(server.owners, "a")
		time.Sleep(5 * time.Minute)
		want("a", "get a, create a: created")
		o.Keep(of, func(name string) bool { return name != "ours" })
		if len(o.names) > 0 || o.Rest(of, "ours") > 0 {
			t.Errorf("%v is kept", o.names)
		}
		server.owners["c"], server.denied = "them", true
		want("c", "create c, get c: occupied for 1s, own true")
		time.Sleep(time.Second)
		want("c", "get c, create c, get c: occupied for 2s, own true")
		delete(server.owners, "c")
		time.Sleep(2 * time.Second)
		want("c", "get c, create c: created")
	})
}

// K8S-28: what seems to be an own object is asked for soon, as a cache shows it soon. One that it never shows is another's, who has given it the labels.
func TestOccupiedByWhatSeemsToBeOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, o := &named{owners: map[string]string{"ours": "us"}}, &Occupied{}
		of, began := slim.Key{Namespace: "bb", Name: "web"}, time.Now()
		for len(o.Others(of)) == 0 {
			server.attempt(t, o, "ours")
			if rest := o.Rest(of, "ours"); rest > 5*time.Second && len(o.Others(of)) == 0 {
				t.Fatalf("it is not asked for in %s", rest)
			}
			time.Sleep(time.Second)
		}
		if d := time.Since(began); d < 15*time.Second || d > 30*time.Second {
			t.Errorf("it counts as another's after %s", d)
		}
		o.Free(of, "ours")
		delete(server.owners, "ours")
		if got := server.attempt(t, o, "ours"); got != "create ours: created" {
			t.Error(got)
		}
	})
}

// What is occupied is told from what has failed, however errors are joined.
func TestSplitOccupied(t *testing.T) {
	failure := errors.New("failure")
	one, two := &OccupiedError{Ref: k8s.Ref{Name: "one"}}, &OccupiedError{Ref: k8s.Ref{Name: "two"}}
	for name, test := range map[string]struct {
		err      error
		occupied int
		failed   bool
	}{
		"nothing":   {nil, 0, false},
		"a failure": {failure, 0, true},
		"one":       {one, 1, false},
		"wrapped":   {fmt.Errorf("creating: %w", one), 1, false},
		"joined":    {errors.Join(one, two), 2, false},
		"nested":    {errors.Join(errors.Join(one, failure), errors.Join(two)), 2, true},
		"deep":      {fmt.Errorf("creating: %w", errors.Join(one, failure)), 1, true},
		"requeued":  {errors.Join(one, Recheck()), 1, true},
	} {
		occupied, others := SplitOccupied(test.err)
		if len(occupied) != test.occupied || (others != nil) != test.failed {
			t.Errorf("%s: %v and %v", name, occupied, others)
		}
	}
	if _, others := SplitOccupied(errors.Join(one, failure)); !errors.Is(others, failure) {
		t.Error("the failure is lost")
	}
	if !strings.Contains(one.Error(), "one exists, and was not made by the operator: delete it") {
		t.Error(one)
	}
}
