// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// CES-30; numbers 20 and 21 of the contract's endpoint-slices.md: an entry has the fields of the release, and one that an original of it
// wrote is no other.
func TestFieldsOfReleases(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Endpoint]()
	if err != nil {
		t.Fatal(err)
	}
	var e ciliumio.Endpoint
	if err := codec.DecodeJSON([]byte(`{
		"metadata": {"name": "web-1", "namespace": "default", "ownerReferences": [
			{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "00000000-0000-4000-8000-000000000000"},
			{"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "d35b3fe0-8edf-47da-b242-dff9640706cf"}]},
		"status": {"identity": {"id": 12345}, "networking": {"addressing": [{"ipv4": "10.0.1.5"}]}, "service-account": "default"}}`), &e); err != nil {
		t.Fatal(err)
	}
	slices, err := slim.JSON[ciliumio.EndpointSlice]()
	if err != nil {
		t.Fatal(err)
	}
	const (
		before  = `{"name":"web-1","id":12345,"networking":{"addressing":[{"ipv4":"10.0.1.5"}]},"encryption":{}%s}`
		account = `,"service-account":"default"`
		uid     = `,"pod-uid":"d35b3fe0-8edf-47da-b242-dff9640706cf"`
	)
	for i, more := range []string{"", "", account, account + uid} {
		shared := cluster.DefaultConfig
		shared.Release = release.All()[i]
		entry, _ := e.Slice()
		entry = fieldsOf(shared).keep(entry)
		var s ciliumio.EndpointSlice
		if err := slices.DecodeJSON([]byte(`{"metadata":{"name":"ces-x"},"namespace":"default","endpoints":[`+fmt.Sprintf(before, more)+`]}`), &s); err != nil {
			t.Fatal(err)
		}
		if s.Endpoints[0] != ciliumio.SliceEndpointOf(&entry) {
			t.Errorf("%s: the entry is %+v, and not %s", shared.Release, entry, fmt.Sprintf(before, more))
		}
	}
}

// CES-27, CES-30: an endpoint whose owners cannot be decoded waits where entries have the uid of the pod, and only there.
func TestOwnersThatCannotBeDecoded(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Endpoint]()
	if err != nil {
		t.Fatal(err)
	}
	var e ciliumio.Endpoint
	if err := codec.DecodeJSON([]byte(`{"metadata": {"name": "web-1", "ownerReferences": [{"kind": "Pod", "name": "web-1", "uid": "`+strings.Repeat("x", 1000)+`"}]},
		"status": {"identity": {"id": 12345}, "networking": {"addressing": [{"ipv4": "10.0.1.5"}]}}}`), &e); err != nil {
		t.Fatal(err)
	}
	if !(fields{podUID: true}).cannotDecode(&e) || (fields{serviceAccount: true}).cannotDecode(&e) {
		t.Errorf("its owners are %v, %v", e.Owners, e.DecodeError())
	}
}

// What an endpoint has in a slice is never larger than is counted, so that a slice that is full enough is never refused.
func TestSize(t *testing.T) {
	long, odd := strings.Repeat("x", 5000), strings.Repeat("<\x00\u00e9\u2028\"\\", 1000)
	for _, e := range []v2alpha1.CoreCiliumEndpoint{
		{},
		{Name: "web-1", IdentityID: -1 << 63, Networking: &v2.EndpointNetworking{Addressing: []v2.AddressPair{}}, Encryption: v2.EncryptionSpec{Key: 255}},
		{Networking: &v2.EndpointNetworking{NodeIP: long}},
		{Networking: &v2.EndpointNetworking{NodeIP: odd, Addressing: []v2.AddressPair{{IPv4: odd, IPv6: odd}, {IPv4: "10.0.1.5"}}}},
		{ServiceAccount: long}, {ServiceAccount: odd}, {PodUID: long}, {PodUID: odd}, {Name: odd},
		{NamedPorts: []v2.NamedPort{{Name: odd, Port: -1 << 31, Protocol: odd}, {Name: "http", Port: 80, Protocol: "TCP"}}},
	} {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if counted := size(&e); counted < len(text) || counted > len(text)*7/2+200 {
			t.Errorf("%.60s…: %d bytes, and %d are counted", text, len(text), counted)
		}
	}
}

// One endpoint with long texts, and its neighbours, are in slices that the API server accepts.
func TestLongEndpointsAreApart(t *testing.T) {
	view := map[slim.Key]v2alpha1.CoreCiliumEndpoint{}
	n := 0
	p := newPlanner(100, false, func() string { n++; return fmt.Sprint("ces-", n) })
	wants := func(key slim.Key, _ int64) (v2alpha1.CoreCiliumEndpoint, bool) { e, ok := view[key]; return e, ok }
	p.bootstrap(wants)
	p.confirm()
	for i := range 100 {
		e := v2alpha1.CoreCiliumEndpoint{Name: fmt.Sprint("web-", i), Networking: &v2.EndpointNetworking{NodeIP: strings.Repeat("x", 32_000)}}
		key := slim.Key{Namespace: "shop", Name: e.Name}
		view[key] = e
		p.upsert(key, ciliumio.SliceEndpointOf(&e), size(&e))
	}
	entries := 0
	for name := range p.slices {
		text, err := json.Marshal(p.nextOp(name, wants).object)
		if err != nil || len(text) > 3<<19 {
			t.Errorf("%s has %d bytes (%v)", name, len(text), err)
		}
		entries += len(p.slices[name].members)
	}
	if entries != 100 {
		t.Errorf("%d of 100 are in slices", entries)
	}
}
