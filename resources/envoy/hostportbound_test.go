// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// ING-25: of what a tenant writes few ports count, whatever it has, also where it says that it is of a Gateway.
func TestHostPortsAreBounded(t *testing.T) {
	codec, err := slim.JSON[Object]()
	if err != nil {
		t.Fatal(err)
	}
	objectOf := func(kind string, n int) *Object {
		t.Helper()
		var more []string
		for port := n; port > 0; port-- {
			more = append(more, fmt.Sprintf(`{"address":{"socketAddress":{"address":"0.0.0.0","portValue":%d}}}`, port))
		}
		text := fmt.Sprintf(`{"metadata":{"name":"c","namespace":"bb","ownerReferences":[{"apiVersion":"x/v1","kind":%q,"name":"o","uid":"u","controller":true}]},
			"spec":{"resources":[{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","additionalAddresses":[%s]}]}}`, kind, strings.Join(more, ","))
		o := &Object{}
		if err := codec.DecodeJSON([]byte(text), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, n := range []int{1, mostHostPorts, mostHostPorts + 1, mostGatewayPorts, mostGatewayPorts + 1, 20_000} {
		for kind, most := range map[string]int{"Gateway": mostGatewayPorts, "Ingress": mostHostPorts, "Deployment": mostHostPorts} {
			ports := objectOf(kind, n).Spec.HostPorts
			if want := min(n, most); len(ports) != want || cap(ports) > 2*most || ports[0] != 1 || ports[want-1] != uint32(want) {
				t.Errorf("of %d ports of a %s %d count: %d", n, kind, len(ports), ports)
			}
		}
	}
}
