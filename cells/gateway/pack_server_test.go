// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/operatortest"
)

// largeRoute has 32 matches with 16 backends at each of 16 hosts.
func largeRoute(namespace, name string) string {
	var hosts, paths []string
	for i := range 16 {
		hosts = append(hosts, fmt.Sprintf("h%d.%s.test", i, name))
	}
	for i := range 32 {
		paths = append(paths, fmt.Sprintf("{path: {type: Exact, value: /%d}}", i))
	}
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: %s}
spec: {parentRefs: [{name: edge, namespace: NS}], hostnames: [%s], rules: [{matches: [%s], backendRefs: [%s]}]}`,
		name, namespace, strings.Join(hosts, ", "), strings.Join(paths, ", "), strings.TrimSuffix(strings.Repeat("{name: v1, port: 80}, ", 16), ", "))
}

// GW-54, ENV-30; K3 of the contract's tenants.md: routes of a namespace that are too large for the Gateway do not keep those of others from coming and
// going; the youngest is left out, told, and served when it fits.
func TestGatewayIsPacked(t *testing.T) {
	w := newWorld(t)
	other := w.namespace("bb")
	w.service(other, "v1")
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"))
	w.apply(httpRoutes.Resource(), httpRouteTo("one", "one.test", "v1"))
	o := w.start()
	w.awaitRoutes("cilium-gateway-edge", "insecure", "one.test/ → NS:v1:80")
	names := []string{"first", "second", "third"}
	for _, name := range names {
		w.apply(httpRoutes.Resource(), largeRoute(other, name))
		time.Sleep(1100 * time.Millisecond) // times of creation are whole seconds
	}
	served := func(name string) bool {
		for _, r := range w.routesOf("cilium-gateway-edge", "insecure") {
			if strings.HasPrefix(r, "h0."+name+".test/") {
				return true
			}
		}
		return false
	}
	operatortest.Eventually(t, "the youngest is left out, and told", func() bool {
		return strings.HasPrefix(w.acceptedIn(other, httpRoutes.Resource(), "third"), "False LeftOut: It is not served: with its ") &&
			w.hasEvent(other, "third", "LeftOut", "bytes") && !served("third")
	})
	for _, name := range names[:2] {
		if got := w.acceptedIn(other, httpRoutes.Resource(), name); got != httpOK || !served(name) {
			t.Errorf("%s: %s", name, got)
		}
	}
	began := time.Now()
	w.apply(httpRoutes.Resource(), httpRouteTo("two", "two.test", "v1"))
	w.delete(httpRoutes.Resource(), "one")
	operatortest.Eventually(t, "others come and go", func() bool {
		all := strings.Join(w.routesOf("cilium-gateway-edge", "insecure"), "\n")
		return strings.Contains(all, "two.test/ → ") && !strings.Contains(all, "one.test/")
	})
	operatortest.Soon(t, "changes of others are written", began)
	own := w.Namespace
	w.Namespace = other
	w.delete(httpRoutes.Resource(), "first")
	w.Namespace = own
	operatortest.Eventually(t, "then the third is served", func() bool { return served("third") && w.acceptedIn(other, httpRoutes.Resource(), "third") == httpOK })
	w.CheckHealthy(o)
}
