// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"testing"

	"github.com/skep-operator/skep/cells/internal/claims"
	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func localOf[T any](t *testing.T, all ...*T) *stream.Local[T] {
	t.Helper()
	l, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	l.Replace(all...)
	return l
}

// allNumbers are the endpoints of a namespace without pods, one for each number of the range, and one of a pod.
func allNumbers(t *testing.T, bounds identity.Range, ofPod identity.Number) (endpoints, inSlices endpointIndex) {
	var all []*ciliumio.Endpoint
	var slicesOf []*ciliumio.EndpointSlice
	add := func(namespace, name string, n identity.Number) {
		e := &ciliumio.Endpoint{}
		e.Namespace, e.Name = slim.MakeString(namespace), name
		e.Status.Identity = &ciliumio.EndpointIdentity{ID: int64(n)}
		s := &ciliumio.EndpointSlice{Of: slim.MakeString(namespace), Endpoints: []ciliumio.SliceEndpoint{{Name: name, IdentityID: int64(n)}}}
		s.Name = "ces-" + n.String() + name
		all, slicesOf = append(all, e), append(slicesOf, s)
	}
	for n := bounds.Min; n <= bounds.Max; n++ {
		add("bb", fmt.Sprint("x", n), n)
	}
	add("aa", "web", ofPod)
	pod := &slim.Pod{}
	pod.Namespace, pod.Name = slim.MakeString("aa"), "web"
	pods := localOf(t, pod)
	endpoints, inSlices = newEndpointIndex(localOf(t, all...), pods), newSliceIndex(localOf(t, slicesOf...), pods)
	for _, index := range []endpointIndex{endpoints, inSlices} {
		if err := index.open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return endpoints, inSlices
}

// ID-14, ID-48; K4 of the contract's tenants.md: endpoints of one namespace that name all numbers leave them to others, but for a bound. That of a pod keeps
// its number, and an identity that such endpoints alone name is not made again.
func TestEndpointsWithoutPodsLeaveNumbers(t *testing.T) {
	bounds := identity.Range{Min: 256, Max: 256 + 299}
	const ofPod = 500
	endpoints, inSlices := allNumbers(t, bounds, ofPod)
	for name, index := range map[string]endpointIndex{"endpoints": endpoints, "slices": inSlices} {
		tb := newTable("c", bounds, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(int) int { return 0 })
		tb.inUseByEndpoint, tb.endpointsWith, tb.numberOfEndpoint = index.has, index.with, index.of
		tb.markSynced()
		given := map[identity.Number]bool{}
		for i := range 300 {
			s := tb.ensureSet(slim.MakeLabels(map[string]string{"k8s:app": fmt.Sprint("web", i)}))
			s.pods = 1
			if !tb.allocateNumber(s) {
				break
			}
			given[s.number] = true
		}
		if want := 300 - claims.Spare - 1; len(given) != want || given[ofPod] {
			t.Errorf("%s: %d numbers are given, want %d; that of a pod: %t", name, len(given), want, given[ofPod])
		}
		if namespace, numbers := index.ignored(); namespace != "bb" || numbers != 200 {
			t.Errorf("%s: ignored are %d of %q", name, numbers, namespace)
		}
	}
}
