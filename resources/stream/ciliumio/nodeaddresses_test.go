// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// CES-36: of the addresses of a node those are kept at which it, or its agent, is reached.
func TestNodeAddresses(t *testing.T) {
	var n ciliumio.NodeAddresses
	if err := json.Unmarshal([]byte(`[{"type":"Hostname","ip":"n1"},{"type":"InternalIP","ip":"192.168.0.2"},{"type":"ExternalIP","ip":"2001:db8::2"},{"type":"InternalIP","ip":"127.0.0.1"},
		{"type":"CiliumInternalIP","ip":"10.0.1.1"},{"ip":"10.0.1.2"},{"type":"InternalIP","ip":"n1"},{"type":"InternalIP"}]`), &n); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(n)
	if want := `[{"type":"InternalIP","ip":"192.168.0.2"},{"type":"ExternalIP","ip":"2001:db8::2"}]`; err != nil || string(text) != want {
		t.Errorf("they are %s, want %s; %v", text, want, err)
	}
	var again ciliumio.NodeAddresses
	if err := json.Unmarshal(text, &again); err != nil || again != n {
		t.Errorf("they are %v, and were %v; %v", again, n, err)
	}
	for kind, a := range n.All() {
		if kind != v2.NodeAddressInternalIP || a.String() != "192.168.0.2" {
			t.Errorf("the first is %s %s", kind, a)
		}
		break
	}
	for _, text := range []string{`{}`, `"x"`, `[7]`, `[{"ip":7}]`, `[{"type":[]}]`} {
		if err := json.Unmarshal([]byte(text), &n); err == nil {
			t.Errorf("%s: it is decoded", text)
		}
	}
}

// An agent may list any number.
func TestMostNodeAddresses(t *testing.T) {
	var list []v2.NodeAddress
	for i := range 10_000 {
		list = append(list, v2.NodeAddress{Type: v2.NodeAddressInternalIP, IP: fmt.Sprintf("10.0.%d.%d", i/200, 1+i%200)})
	}
	text, err := json.Marshal(ciliumio.MakeNodeAddresses(list...))
	if n := strings.Count(string(text), "ip"); err != nil || n != 64 || !strings.Contains(string(text), `"10.0.0.64"`) {
		t.Errorf("%d are kept; %v", n, err)
	}
}
