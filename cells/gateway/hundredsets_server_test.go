// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Number 3.4 of the contract's tenants.md: a hundred ListenerSets with 64 listeners each do not keep the routes of others from coming and going.
func TestHundredListenerSets(t *testing.T) {
	sets, each := 100, 64
	if seedtest.RaceEnabled {
		sets = 10 // it has the planning of a hundred cost minutes
	}
	w := newWorld(t)
	other := w.namespace("bb")
	w.apply(gateways.Resource(), fmt.Sprintf(openGateway, "All"))
	w.apply(httpRoutes.Resource(), httpRouteTo("one", "own.com", "v1"))
	o := w.start()
	w.awaitRoutes("cilium-gateway-edge", "insecure", "own.com/ → NS:v1:80")
	for i := range sets {
		var listeners []string
		for j := range each {
			listeners = append(listeners, fmt.Sprintf("{name: l%d, port: 80, protocol: HTTP, hostname: h%[1]d.s%d.test}", j, i))
		}
		w.apply(listenerSets.Resource(), listenerSetOf(fmt.Sprint("s", i), other, strings.Join(listeners, ", ")))
	}
	began := time.Now()
	w.apply(httpRoutes.Resource(), httpRouteTo("two", "own.com", "v2"))
	w.delete(httpRoutes.Resource(), "one")
	w.awaitRoutes("cilium-gateway-edge", "insecure", "own.com/ → NS:v2:80")
	operatortest.Soon(t, "changes of others are written", began)
	for i := range sets {
		name := fmt.Sprint("s", i)
		operatortest.Eventually(t, name+" has its status", func() bool {
			s := w.listenerSet(other, name)
			return strings.HasPrefix(says(s.Status.Conditions, "Accepted"), "True") && len(s.Status.Listeners) == each
		})
	}
	w.CheckHealthy(o)
}
