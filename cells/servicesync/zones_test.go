// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/kvstore"
)

// zoned is an endpoint with an address in a zone, for zones.
func zoned(address, zone string, forZones ...string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}}
	if zone != "" {
		e.Zone = new(zone)
	}
	for _, name := range forZones {
		if e.Hints == nil {
			e.Hints = &discoveryv1.EndpointHints{}
		}
		e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: name})
	}
	return e
}

func withEndpoints(all ...discoveryv1.Endpoint) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) { s.Endpoints = all }
}

// Number 17 of the contract's service-sync.md; SSYNC-23: the zones of backends, for agents from 1.19 on.
func TestZones(t *testing.T) {
	of := []*endpointSlice{decodeSlice(t, withEndpoints(
		zoned("10.0.1.5", "z1", "z1"), zoned("10.0.1.6", "z2"), zoned("10.0.1.7", ""), zoned("10.0.1.8", "z1", "z1"), zoned("10.0.1.9", "z1", "z1", "z2"), zoned("bad", "z1"),
	))}
	const want = `"hostnames":{},"zones":{"10.0.1.5":{"zone":"z1","forZones":[{"name":"z1"}]},"10.0.1.6":{"zone":"z2","forZones":[]},` +
		`"10.0.1.8":{"zone":"z1","forZones":[{"name":"z1"}]},"10.0.1.9":{"zone":"z1","forZones":[{"name":"z1"},{"name":"z2"}]}},"labels":`
	for i, r := range release.All() {
		shared := cluster1
		shared.Release = r
		value, _ := encode(decodeService(t, nil), of, Config{}, shared)
		if got := strings.Contains(string(value), want); got != (i >= 2) || !got && strings.Contains(string(value), "zone") {
			t.Errorf("%s: %s", r, value)
		}
		without, _ := encode(decodeService(t, nil), []*endpointSlice{decodeSlice(t, withEndpoints(zoned("10.0.1.7", "")))}, Config{}, shared)
		if strings.Contains(string(without), "zone") {
			t.Errorf("%s: without zones it is %s", r, without)
		}
	}
}

// SSYNC-21 and SSYNC-23: zones are what a value goes without first.
func TestZonesBeyondTheSizeOfAKey(t *testing.T) {
	all := make([]discoveryv1.Endpoint, 0, 20_000)
	for i := range cap(all) {
		all = append(all, zoned(fmt.Sprintf("10.%d.%d.1", i>>8, i&0xff), "europe-west-1"+strings.Repeat("x", 40), "europe-west-1"))
	}
	newest := cluster1
	newest.Release = release.Newest()
	value, out := encode(decodeService(t, nil), []*endpointSlice{decodeSlice(t, withEndpoints(all...))}, Config{}, newest)
	var v clusterService
	if err := json.Unmarshal(value, &v); err != nil {
		t.Fatal(err)
	}
	if len(value) > kvstore.MaxValue || len(value) < kvstore.MaxValue-25_000 || len(v.Backends) != len(all) || len(v.Zones) == 0 || len(v.Zones) == len(all) || out.beyond.some() {
		t.Errorf("%d bytes of %d, %d backends, %d zones, left out are %+v", len(value), kvstore.MaxValue, len(v.Backends), len(v.Zones), out.beyond)
	}
}

// Number 19 of the contract's service-sync.md; SSYNC-22: from 1.18 on a label makes a Service headless.
func TestHeadlessByLabel(t *testing.T) {
	labelled := decodeService(t, func(s *corev1.Service) { s.Labels = map[string]string{corev1.IsHeadlessService: ""} })
	for i, r := range release.All() {
		shared := cluster1
		shared.Release = r
		value, _ := encode(labelled, nil, Config{}, shared)
		if got := strings.Contains(string(value), `"frontends":{},`); got != (i >= 1) {
			t.Errorf("%s: %s", r, value)
		}
	}
}
