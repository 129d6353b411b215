// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeips

import (
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

func TestAddresses(t *testing.T) {
	internal := slim.NodeAddress{Type: slim.MakeString("InternalIP"), Address: "10.0.0.1"}
	external := slim.NodeAddress{Type: slim.MakeString("ExternalIP"), Address: "192.0.2.1"}
	for _, c := range []struct {
		addresses []slim.NodeAddress
		value     string
	}{
		{[]slim.NodeAddress{internal, external}, `["10.0.0.1"]`},
		{[]slim.NodeAddress{external}, ""},
	} {
		if value := addresses(&slim.Node{Status: slim.NodeStatus{Addresses: c.addresses}}); string(value) != c.value {
			t.Errorf("%+v: %s, want %s", c.addresses, value, c.value)
		}
	}
}
