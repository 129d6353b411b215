// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/metrics"
)

// oneNode is a client of a server with one node.
type oneNode struct {
	k8s.Client
	node *unstructured.Unstructured
}

func (c oneNode) Modify(_ context.Context, _ k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	return c.node, true, edit(c.node)
}

// POOL-19, POOL-20 and POOL-24: a decision is written only upon what it was made about.
func TestWritesApplyOnlyToTheObservedNode(t *testing.T) {
	about := observed{Name: "a", UID: "uid-1"}
	for name, test := range map[string]struct {
		now  simNode
		want []string
		err  error
	}{
		"as it was":     {simNode{name: "a", uid: "uid-1"}, []string{"10.0.0.0/24"}, nil},
		"another node":  {simNode{name: "a", uid: "uid-2"}, nil, errOutdated},
		"going":         {simNode{name: "a", uid: "uid-1", going: true}, nil, errOutdated},
		"has another":   {simNode{name: "a", uid: "uid-1", cidrs: []string{"10.0.9.0/24"}}, []string{"10.0.9.0/24"}, errOutdated},
		"has some more": {simNode{name: "a", uid: "uid-1", cidrs: []string{"10.0.0.0/25", "xyz"}}, []string{"10.0.0.0/25", "xyz"}, errOutdated},
	} {
		u := test.now.encoded()
		s := &controller{params: params{Client: oneNode{node: u}, Metrics: newMetrics(metrics.Factory{})}}
		_, err := s.modify(t.Context(), k8s.Ref{Name: "a"}, about, func(u *unstructured.Unstructured) error {
			return setPodCIDRs(u, about.PodCIDRs, []string{"10.0.0.0/24"})
		})
		if got, _ := says(u); !errors.Is(err, test.err) || !slices.Equal(got, test.want) {
			t.Errorf("%s: the node has %v, not %v (%v, not %v)", name, got, test.want, err, test.err)
		}
	}
}
