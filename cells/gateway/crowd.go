// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// places is how many host names a route has at the listeners that its references name, together: its hosts are kept, and claimed, once for each.
func (p *gatewayPlan) places(r *route.Route, lookup route.Lookup) (n int) {
	for _, ref := range r.Parents {
		if id, ok := r.ParentID(ref); ok {
			n += listener.CountHosts(r, ref, p.byParent[id], lookup)
		}
	}
	return n
}

// crowdOf is the routes that are not attached, by id, since a Gateway would have host names at more than so many places (GW-54). They are left out before
// anything is made of them: 32 ListenerSets of 64 ports and 60 routes of 16 host names for all of them have two million places.
func crowdOf(all map[slim.Key]*plannedRoute, most int) (out map[slim.Key]bool) {
	total := 0
	for _, r := range all {
		total += r.places
	}
	if total <= most {
		return nil
	}
	var parts []envoyres.Part
	for id, r := range all {
		if r.places > 0 {
			parts = append(parts, envoyres.Part{Object: id, Created: r.of.CreationTimestamp, Size: r.places})
		}
	}
	out = map[slim.Key]bool{}
	for _, id := range envoyres.LeaveOut(parts, most) {
		out[id] = true
	}
	return out
}

func tooManyPlaces(places, most int) condition.Condition {
	return condition.False(leftOut, fmt.Sprintf(
		"It is not served: with its host names at %d places, each counted at each listener, the Gateway would have more than %d, and no namespace has more of them: use fewer hostnames or listeners, or another Gateway",
		places, most))
}
