// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-59, K8S-24: a route of each kind that is cut has no rules, and is not accepted. It is compiled anew, although its generation is
// the same.
func TestCut(t *testing.T) {
	const text = "{metadata: {name: large, namespace: shop, uid: u, generation: 1}, spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: v1, port: 80}]}]}}"
	w := &world{services: map[string]Answer{"v1": isServed}}
	for kind, parsed := range map[string]interface{ Route() *Route }{
		KindHTTP: parse[HTTP](t, text), KindGRPC: parse[GRPC](t, text), KindTLS: parse[TLS](t, text), KindTCP: parse[TCP](t, text), KindUDP: parse[UDP](t, text),
		"alpha of " + KindTLS: parse[TLSAlpha](t, text), "alpha of " + KindTCP: parse[TCPAlpha](t, text), "alpha of " + KindUDP: parse[UDPAlpha](t, text),
	} {
		cache := NewCache(func(slim.Key) bool { return true })
		whole := parsed.Route()
		if d := cache.Dropped(whole, w.lookup); len(d.Dropped) > 0 {
			t.Errorf("%s: whole it has no %v", kind, d.Dropped)
		}
		if !slim.CutDown(parsed, 100<<10) {
			t.Errorf("%s cannot be cut", kind)
			continue
		}
		cut := parsed.Route()
		d := cache.Dropped(cut, w.lookup)
		if why := d.PartiallyInvalid(); !d.IsDropped() || why == nil || !strings.HasPrefix(why.Message, "It is not served: it needs 100 KiB") {
			t.Errorf("%s: cut it has %v", kind, d)
		}
		if c := cache.Compile(cut, w.lookup); len(c.Routes)+len(c.Passthrough)+len(c.Terminated)+len(c.Ports) > 0 || len(cut.Parents) != 1 {
			t.Errorf("%s: cut it is %+v", kind, c)
		}
	}
}
