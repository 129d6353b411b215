// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package claims

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// view has pods, and endpoints with their numbers.
type view struct {
	pods      *stream.Local[slim.Pod]
	endpoints map[slim.Key]identity.Number
	*Claims
}

func newView(t *testing.T) *view {
	t.Helper()
	pods, err := stream.NewLocal[slim.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	pods.Replace()
	store, err := pods.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := &view{pods: pods, endpoints: map[slim.Key]identity.Number{}}
	v.Claims = New(store, func(yield func(slim.Key, identity.Number)) {
		for key, n := range v.endpoints {
			yield(key, n)
		}
	})
	return v
}

func (v *view) pod(namespace, name string) {
	p := &slim.Pod{}
	p.Namespace, p.Name = slim.MakeString(namespace), name
	v.pods.Upsert(p)
}

// claim makes endpoints of a namespace with numbers from one on.
func (v *view) claim(namespace, name string, from, n int) {
	for i := range n {
		v.endpoints[slim.Key{Namespace: namespace, Name: fmt.Sprint(name, i)}] = identity.Number(from + i)
	}
}

// counting is how many endpoints of a namespace count.
func (v *view) counting(namespace string) (n int) {
	for key, number := range v.endpoints {
		if key.Namespace == namespace && v.Counts(key, number) {
			n++
		}
	}
	return n
}

// ID-48; K4 of the contract's tenants.md: endpoints that are of no pod count for a hundred numbers of a namespace and one for each of its pods; those of
// pods always do.
func TestClaimsOfANamespaceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t)
		for i := range 150 {
			v.pod("aa", fmt.Sprint("web", i))
			v.pod("cc", fmt.Sprint("multi", i))
		}
		v.claim("aa", "web", 300, 150)
		v.claim("bb", "x", 256, 65_280)
		v.claim("cc", "x", 256, 1000)
		for i := range 150 {
			v.endpoints[slim.Key{Namespace: "cc", Name: fmt.Sprintf("multi%d-net-1", i)}] = identity.Number(70_000 + i)
		}
		v.claim("dd", "left-over", 400, Spare)
		for namespace, want := range map[string]int{"aa": 150, "bb": Spare, "cc": 150 + Spare, "dd": Spare} {
			if got := v.counting(namespace); got != want {
				t.Errorf("of %s %d endpoints count, want %d", namespace, got, want)
			}
		}
		for i := range 150 { // several interfaces
			if key := (slim.Key{Namespace: "cc", Name: fmt.Sprintf("multi%d-net-1", i)}); !v.Counts(key, v.endpoints[key]) {
				t.Fatalf("%v does not count", key)
			}
		}
		if namespace, numbers := v.Ignored(); namespace != "bb" || numbers != 65_280-Spare {
			t.Errorf("ignored are %d of %q", numbers, namespace)
		}
		late := slim.Key{Namespace: "bb", Name: "late"}
		v.endpoints[late] = 70_001
		if !v.Counts(late, 70_001) {
			t.Error("an endpoint that is new does not count")
		}
		time.Sleep(2 * maxAge)
		if v.Counts(late, 70_001) {
			t.Error("it counts later")
		}
		v.pod("bb", "late")
		if !v.Counts(late, 70_001) {
			t.Error("it does not count when it has a pod")
		}
		for i := range 65_280 {
			delete(v.endpoints, slim.Key{Namespace: "bb", Name: fmt.Sprint("x", i)})
		}
		time.Sleep(2 * maxAge)
		if namespace, numbers := v.Ignored(); namespace != "cc" || numbers != 900 {
			t.Errorf("ignored are %d of %q", numbers, namespace)
		}
		var none *Claims
		if namespace, _ := none.Ignored(); !none.Counts(late, 1) || namespace != "" {
			t.Error("without pods an endpoint does not count")
		}
	})
}
