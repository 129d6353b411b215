// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"fmt"
	"testing"

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
