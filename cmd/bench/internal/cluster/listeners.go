// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// What a large Gateway has.
const (
	manyListeners = 64
	listenerPorts = 8
	perListener   = 5 // routes
)

// listeners are the routes of a Gateway with many listeners on several ports, each of which is a listener of Envoy.
func (b Bench) listeners() pathKind {
	k := b.routes()
	k.plural, k.counts, k.recorded, k.most99 = "HTTPRoutes of 64 listeners", []int{manyListeners * perListener}, nil, 100
	k.prepare = func(ctx context.Context, p *plane) error {
		var all []any
		for i := range manyListeners {
			all = append(all, map[string]any{
				"name": fmt.Sprint("l", i), "port": int64(8000 + i%listenerPorts), "protocol": "HTTP", "hostname": hostOfListener(i),
			})
		}
		return prepareGatewayOf(ctx, p, all...)
	}
	k.object = func(at int) *unstructured.Unstructured {
		route := benchRoute(at)
		_ = unstructured.SetNestedStringSlice(route.Object, []string{hostOfListener(at % manyListeners)}, "spec", "hostnames") // it has a spec
		return route
	}
	return k
}

func hostOfListener(i int) string { return fmt.Sprintf("host-%d.example.com", i) }

func (b Bench) listenersContest() contest.Contest {
	return contest.Contest{
		Name: "listeners", Title: "A Gateway with 64 listeners on 8 ports",
		Note: fmt.Sprintf("Each listener has a host of its own, and %d HTTPRoutes with a path each. An edit changes the path of one; twenty are made, a second apart. "+
			"Times are between events of watches of the bench, as for the routes of one listener. One round.", perListener),
		Contestants: contestants, Measures: b.listeners().measures(),
	}
}
