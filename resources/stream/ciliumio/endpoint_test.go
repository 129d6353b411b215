// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

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
	a := slices.Collect(e.Status.Networking.Addresses())
	if len(a) != 2 || a[0].Addr != netip.MustParseAddr("10.1.0.7") || a[1].Addr != netip.MustParseAddr("fd00::7") {
		t.Errorf("addresses are %v", a)
	}
	if e.Key().String() != "shop/web-0" || e.CreationTimestamp.Time().Minute() != 4 {
		t.Errorf("metadata is %+v", e.EndpointMeta)
	}
	for text, known := range map[string]bool{
		`{"metadata": {"name": "x"}, "status": {"networking": null, "identity": null}}`: false,
		`{"metadata": {"name": "x"}}`: false,
		`{"metadata": {"name": "x"}, "status": {"networking": {"addressing": []}, "identity": {}}}`:                            true,
		`{"metadata": {"name": "x"}, "status": {"networking": {"addressing": null, "node": ""}, "identity": {"id": 0}}}`:       true,
		`{"metadata": {"name": "x"}, "status": {"identity": {"id": 7}, "named-ports": [{"name": "a", "port": 1}], "id": "7"}}`: false,
	} {
		var bare ciliumio.Endpoint
		if err := codec.DecodeJSON([]byte(text), &bare); err != nil {
			t.Error(err)
		}
		if _, ok := bare.Slice(); ok != known {
			t.Errorf("%s: a slice may have it: %t", text, ok)
		}
	}
}

// What a slice says of an endpoint is what the endpoint says, letter by letter.
func TestSliceOfEndpoint(t *testing.T) {
	endpoint, err := slim.JSON[ciliumio.Endpoint]()
	if err != nil {
		t.Fatal(err)
	}
	slice, err := slim.JSON[ciliumio.EndpointSlice]()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]string{}
	for _, rest := range []string{
		`"networking":{"addressing":[{"ipv4":"10.0.1.5","ipv6":"fd00:1::5"}],"node":"192.168.0.2"},"encryption":{"key":3},"named-ports":[{"name":"http","port":8080,"protocol":"TCP"}]`,
		`"networking":{"addressing":[{"ipv6":"fd00:1::5"}],"node":"192.168.0.2"},"encryption":{}`,
		`"networking":{"addressing":[]},"encryption":{}`,
		`"networking":{"addressing":[]},"encryption":{},"service-account":"default"`,
		`"networking":{"addressing":[]},"encryption":{},"service-account":"other"`,
		`"networking":{"addressing":[{}]},"encryption":{}`,
		`"networking":{"addressing":[{"ipv4":"nonsense","ipv6":"FD00::1"},{"ipv4":"010.0.0.1","ipv6":"fe80::1%eth0"},{"ipv4":"::ffff:1.2.3.4"}],"node":"n"},"encryption":{}`,
		`"networking":{"addressing":[{"ipv4":"10.0.1.5"},{"ipv4":"10.0.1.6"}]},"encryption":{},"named-ports":[{"name":"b","port":2,"protocol":"UDP"},{"name":"a","port":1}]`,
		`"networking":{"addressing":[{"ipv4":"10.0.1.6"},{"ipv4":"10.0.1.5"}]},"encryption":{},"named-ports":[{"name":"a","port":1},{"name":"b","port":2,"protocol":"UDP"}]`,
		`"networking":{"addressing":[{"ipv4":"10.0.1.6"},{"ipv4":"10.0.1.5"}]},"encryption":{},"named-ports":[{"name":"a","port":2},{"name":"b","port":2,"protocol":"UDP"}]`,
	} {
		var e ciliumio.Endpoint
		if err := endpoint.DecodeJSON([]byte(`{"metadata":{"name":"web-1"},"status":{"identity":{"id":12345},`+rest+`}}`), &e); err != nil {
			t.Fatal(err)
		}
		says, ok := e.Slice()
		text, err := json.Marshal(says)
		if want := `{"name":"web-1","id":12345,` + rest + `}`; !ok || err != nil || string(text) != want {
			t.Errorf("a slice says %s, want %s (%v)", text, want, err)
		}
		var s ciliumio.EndpointSlice
		if err := slice.DecodeJSON([]byte(`{"metadata":{"name":"ces-x"},"namespace":"shop","endpoints":[`+string(text)+`]}`), &s); err != nil {
			t.Fatal(err)
		}
		if s.Of.String() != "shop" || len(s.Endpoints) != 1 || s.Endpoints[0] != ciliumio.SliceEndpointOf(&says) || s.Endpoints[0].Name != "web-1" || s.Endpoints[0].IdentityID != 12345 {
			t.Errorf("read back: %+v", s)
		}
		if other := seen[s.Endpoints[0].Sum]; other != "" {
			t.Errorf("the same sum:\n%s\n%s", rest, other)
		}
		seen[s.Endpoints[0].Sum] = rest
	}
}

// CES-27: what is larger than an endpoint needs is not read, and the rest is.
func TestLargeEndpoints(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Endpoint]()
	if err != nil {
		t.Fatal(err)
	}
	for text, field := range map[string]string{
		`"networking":{"addressing":[` + strings.Repeat(`{"ipv4":"10.0.1.5"},`, 2000) + `{}]}`:     "status.networking",
		`"networking":{"addressing":[{"ipv4":"` + strings.Repeat("x", 40_000) + `"}]}`:             "status.networking",
		`"named-ports":[` + strings.Repeat(`{"name":"http","port":8080},`, 2000) + `{}]`:           "status.named-ports",
		`"networking":{"addressing":[` + strings.Repeat(`{"ipv4":"10.0.1.5"},`, 1000) + `{}]}`:     "",
		`"named-ports":[` + strings.Repeat(`{"name":"http","port":8080},`, 1000) + `{"name":"a"}]`: "",
		`"service-account":"` + strings.Repeat("x", 254) + `"`:                                     "status.service-account",
		`"service-account":"` + strings.Repeat("x", 1_400_000) + `"`:                               "status.service-account",
		`"service-account":"` + strings.Repeat("x", 253) + `"`:                                     "",
	} {
		var e ciliumio.Endpoint
		if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"web-1"},"status":{"identity":{"id":12345},`+text+`}}`), &e); err != nil {
			t.Fatal(err)
		}
		if e.Status.Identity.ID != 12345 || e.CannotDecode("status") != (field != "") || field != "" && !e.CannotDecode(field) {
			t.Errorf("%.40s…: cannot be decoded: %v", text, e.Undecoded)
		}
	}
}

// CES-27: what is larger than the owners of an endpoint are, or than a uid is, is not read, nor kept.
func TestLargeOwners(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Endpoint]()
	if err != nil {
		t.Fatal(err)
	}
	const pod = `{"apiVersion":"v1","kind":"Pod","name":"web-1","uid":"%s"}`
	for _, test := range []struct {
		owners string
		large  bool
	}{
		{fmt.Sprintf(pod, strings.Repeat("x", 253)), false},
		{fmt.Sprintf(pod, strings.Repeat("x", 254)), true},
		{fmt.Sprintf(pod, strings.Repeat("x", 1_400_000)), true},
		{strings.Repeat(fmt.Sprintf(pod, "u")+",", 1000) + fmt.Sprintf(pod, "u"), true},
	} {
		var e ciliumio.Endpoint
		if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"web-1","ownerReferences":[`+test.owners+`]},"status":{"identity":{"id":12345},"networking":{}}}`), &e); err != nil {
			t.Fatal(err)
		}
		entry, _ := e.Slice()
		if e.CannotDecode("metadata.ownerReferences") != test.large || (entry.PodUID == "") != test.large || e.Status.Identity.ID != 12345 {
			t.Errorf("%d bytes of owners: cannot be decoded: %v", len(test.owners), e.Undecoded)
		}
		if size := slim.SizeOf(&e); size > 72<<10 { // of what cannot be decoded 64 KiB are kept as they are
			t.Errorf("%d bytes of owners: %d bytes are kept", len(test.owners), size)
		}
	}
}

// Thousands of them are kept.
func TestSizes(t *testing.T) {
	for name, size := range map[string][2]uintptr{
		"EndpointStatus":     {unsafe.Sizeof(ciliumio.EndpointStatus{}), 56},
		"EndpointNetworking": {unsafe.Sizeof(ciliumio.EndpointNetworking{}), 24},
		"SliceEndpoint":      {unsafe.Sizeof(ciliumio.SliceEndpoint{}), 32},
	} {
		if size[0] > size[1] {
			t.Errorf("%s has %d bytes, at most %d are allowed", name, size[0], size[1])
		}
	}
}
