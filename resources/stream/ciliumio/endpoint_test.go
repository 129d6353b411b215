// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio_test

import (
	"net/netip"
	"testing"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func TestEndpoint(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Endpoint]()
	if err != nil {
		t.Fatal(err)
	}
	var e ciliumio.Endpoint
	err = codec.DecodeJSON([]byte(`{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint",
		"metadata": {
			"name": "web-0", "namespace": "shop", "uid": "7d0e5b0e-0d1c-4c39-8d0a-1a2b3c4d5e6f", "resourceVersion": "42", "creationTimestamp": "2026-01-02T03:04:05Z",
			"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "0c1d2e3f-0000-4000-8000-000000000001"}]
		},
		"status": {"id": 7, "networking": {"node": "10.0.0.1", "addressing": [{"ipv4": "10.1.0.7", "ipv6": "fd00::7"}]}}
	}`), &e)
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Owners) != 1 || e.Owners[0].Kind.String() != "Pod" || e.Owners[0].Name != "web-0" || e.Owners[0].UID.String() != "0c1d2e3f-0000-4000-8000-000000000001" {
		t.Errorf("owners are %v", e.Owners)
	}
	a := e.Status.Networking.Addressing
	if len(a) != 1 || a[0].IPV4.Addr != netip.MustParseAddr("10.1.0.7") || a[0].IPV6.Addr != netip.MustParseAddr("fd00::7") {
		t.Errorf("addresses are %v", a)
	}
	if e.Key().String() != "shop/web-0" || e.CreationTimestamp.Time().Minute() != 4 {
		t.Errorf("metadata is %+v", e.EndpointMeta)
	}
	var bare ciliumio.Endpoint
	if err := codec.DecodeJSON([]byte(`{"metadata": {"name": "x"}, "status": {"networking": null}}`), &bare); err != nil {
		t.Error(err)
	}
}
