// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var cluster1 = cluster.Config{ClusterName: "cluster1", ClusterID: 1}

// nodeA is the CiliumNode of NSYN-E1, without its metadata's name.
const nodeA = `
	"labels":{"kubernetes.io/hostname":"node-a"},"annotations":{"network.cilium.io/wg-pub-key":"abc="}},
	"spec":{
		"addresses":[{"type":"InternalIP","ip":"192.168.0.2"},{"type":"CiliumInternalIP","ip":"10.0.1.1"}],
		"ipam":{"podCIDRs":["10.0.1.0/24","fd00:1::/112","10.0.9.0/24"]},
		"health":{"ipv4":"10.0.1.9"},"encryption":{"key":3},"nodeidentity":6,"bootid":"b-1"}}`

const nodeAValue = `{"Name":"node-a","Cluster":"cluster1",` +
	`"IPAddresses":[{"Type":"InternalIP","IP":"192.168.0.2"},{"Type":"CiliumInternalIP","IP":"10.0.1.1"}],` +
	`"IPv4AllocCIDR":{"IP":"10.0.1.0","Mask":"////AA=="},` +
	`"IPv4SecondaryAllocCIDRs":[{"IP":"10.0.9.0","Mask":"////AA=="}],` +
	`"IPv6AllocCIDR":{"IP":"fd00:1::","Mask":"//////////////////8AAA=="},` +
	`"IPv6SecondaryAllocCIDRs":null,` +
	`"IPv4HealthIP":"10.0.1.9","IPv6HealthIP":"","IPv4IngressIP":"","IPv6IngressIP":"",` +
	`"ClusterID":1,"Source":"custom-resource","EncryptionKey":3,` +
	`"Labels":{"kubernetes.io/hostname":"node-a"},"Annotations":{"network.cilium.io/wg-pub-key":"abc="},` +
	`"NodeIdentity":6,"WireguardPubKey":"abc=","BootID":"b-1"}`

// empty is the value of a CiliumNode that has a name only. Tests replace parts of it.
const empty = `{"Name":"n","Cluster":"cluster1","IPAddresses":null,` +
	`"IPv4AllocCIDR":null,"IPv4SecondaryAllocCIDRs":null,"IPv6AllocCIDR":null,"IPv6SecondaryAllocCIDRs":null,` +
	`"IPv4HealthIP":"","IPv6HealthIP":"","IPv4IngressIP":"","IPv6IngressIP":"",` +
	`"ClusterID":1,"Source":"custom-resource","EncryptionKey":0,"Labels":null,"Annotations":null,` +
	`"NodeIdentity":0,"WireguardPubKey":"","BootID":""}`

func decode(t testing.TB, text string) *node {
	t.Helper()
	codec, err := slim.JSON[node]()
	if err != nil {
		t.Fatal(err)
	}
	n := &node{}
	if err := codec.DecodeJSON([]byte(text), n); err != nil {
		t.Fatal(err)
	}
	return n
}

// NSYN-4 to NSYN-8; NSYN-E1 and NSYN-E2.
func TestEncode(t *testing.T) {
	for name, c := range map[string]struct {
		object  string
		want    string   // of the whole; "" for empty with replacements
		replace []string // pairs
	}{
		"E1":      {object: `{"metadata":{"name":"node-a",` + nodeA, want: nodeAValue},
		"E2":      {object: `{"metadata":{"name":"n"},"spec":{}}`},
		"no spec": {object: `{"metadata":{"name":"n"}}`},
		"bad addresses": {
			object: `{"metadata":{"name":"n"},"spec":{"addresses":[{"type":"Hostname","ip":"n"},{"type":"InternalIP","ip":"fe80::1%eth0"},{"type":"ExternalIP","ip":"2001:DB8::0001"}],
				"health":{"ipv4":"x","ipv6":"::ffff:10.0.0.1"}}}`,
			replace: []string{`"IPAddresses":null`, `"IPAddresses":[{"Type":"ExternalIP","IP":"2001:db8::1"}]`, `"IPv6HealthIP":""`, `"IPv6HealthIP":"10.0.0.1"`},
		},
		"only bad addresses": {object: `{"metadata":{"name":"n"},"spec":{"addresses":[{"type":"InternalIP","ip":""}],"ipam":{"podCIDRs":["10.0.0.0","","10.0.0.0/33"]}}}`},
		"pools": {
			object: `{"metadata":{"name":"n"},"spec":{"ipam":{"podCIDRs":["bad"],"pools":{"allocated":[{"pool":"a","cidrs":["10.1.0.7/26","10.2.0.0/26"]},{"pool":"b"},{"pool":"c","cidrs":["fd00::/64","10.3.0.0/25"]}]}}}}`,
			replace: []string{
				`"IPv4AllocCIDR":null`, `"IPv4AllocCIDR":{"IP":"10.1.0.0","Mask":"////wA=="}`,
				`"IPv4SecondaryAllocCIDRs":null`, `"IPv4SecondaryAllocCIDRs":[{"IP":"10.2.0.0","Mask":"////wA=="},{"IP":"10.3.0.0","Mask":"////gA=="}]`,
				`"IPv6AllocCIDR":null`, `"IPv6AllocCIDR":{"IP":"fd00::","Mask":"//////////8AAAAAAAAAAA=="}`,
			},
		},
		"addresses that no node has (K4 of the contract's tenants.md)": {
			object: `{"metadata":{"name":"n"},"spec":{"addresses":[{"type":"InternalIP","ip":"0.0.0.0"},{"type":"InternalIP","ip":"127.0.0.1"},{"type":"ExternalIP","ip":"ff02::1"},
				{"type":"InternalIP","ip":"169.254.0.1"},{"type":"CiliumInternalIP","ip":"169.254.23.0"},{"type":"CiliumInternalIP","ip":"::1"}],
				"health":{"ipv4":"224.0.0.1","ipv6":"::"},"ingress":{"ipv4":"127.0.0.1","ipv6":"fe80::1"},
				"ipam":{"podCIDRs":["0.0.0.0/0","10.0.0.0/7","127.0.0.0/24","::/48","fd00::/31"],"pools":{"allocated":[{"pool":"a","cidrs":["224.0.0.0/24","169.254.0.0/24","10.0.0.0/16"]}]}}}}`,
			replace: []string{
				`"IPAddresses":null`, `"IPAddresses":[{"Type":"CiliumInternalIP","IP":"169.254.23.0"}]`,
				`"IPv4AllocCIDR":null`, `"IPv4AllocCIDR":{"IP":"10.0.0.0","Mask":"//8AAA=="}`,
			},
		},
		"cluster-pool-ipv4-mask-size is 14, that of IPv6 32": {
			object: `{"metadata":{"name":"n"},"spec":{"ipam":{"podCIDRs":["10.0.0.0/14","fd00::/32"]}}}`,
			replace: []string{
				`"IPv4AllocCIDR":null`, `"IPv4AllocCIDR":{"IP":"10.0.0.0","Mask":"//wAAA=="}`,
				`"IPv6AllocCIDR":null`, `"IPv6AllocCIDR":{"IP":"fd00::","Mask":"/////wAAAAAAAAAAAAAAAA=="}`,
			},
		},
		"ingress": {
			object:  `{"metadata":{"name":"n"},"spec":{"ingress":{"ipv4":"10.0.0.5","ipv6":"fd00::5"}}}`,
			replace: []string{`"IPv4IngressIP":"","IPv6IngressIP":""`, `"IPv4IngressIP":"10.0.0.5","IPv6IngressIP":"fd00::5"`},
		},
		"old name of the key": {
			object:  `{"metadata":{"name":"n","annotations":{"io.cilium.network.wg-pub-key":"old"}}}`,
			replace: []string{`"Annotations":null`, `"Annotations":{"io.cilium.network.wg-pub-key":"old"}`, `"WireguardPubKey":""`, `"WireguardPubKey":"old"`},
		},
		"both names": {
			object: `{"metadata":{"name":"n","annotations":{"io.cilium.network.wg-pub-key":"old","network.cilium.io/wg-pub-key":""}}}`,
			replace: []string{
				`"Annotations":null`, `"Annotations":{"io.cilium.network.wg-pub-key":"old","network.cilium.io/wg-pub-key":""}`,
			},
		},
		"escapes": {
			object:  `{"metadata":{"name":"n","annotations":{"b":"<&>\u2028é","a":"\"\\"}},"spec":{"bootid":"<"}}`,
			replace: []string{`"Annotations":null`, `"Annotations":{"a":"\"\\","b":"\u003c\u0026\u003e\u2028é"}`, `"BootID":""`, `"BootID":"\u003c"`},
		},
	} {
		want := c.want
		if want == "" {
			want = strings.NewReplacer(c.replace...).Replace(empty)
		}
		got, _, err := encode(cluster1, decode(t, c.object))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s, want\n%s", name, err, got, want)
		}
	}
}

// NSYN-9: what agents could not read, and what cannot be decoded, is not written.
func TestNotEncoded(t *testing.T) {
	for object, field := range map[string]string{
		`{"metadata":{"name":"n"},"spec":{"encryption":{"key":256}}}`:      "spec.encryption.key",
		`{"metadata":{"name":"n"},"spec":{"encryption":{"key":-1}}}`:       "spec.encryption.key",
		`{"metadata":{"name":"n"},"spec":{"nodeidentity":4294967296}}`:     "spec.nodeidentity",
		`{"metadata":{"name":"n"},"spec":{"nodeidentity":-1}}`:             "spec.nodeidentity",
		`{"metadata":{"name":"n"},"spec":{"ipam":{"podCIDRs":7}}}`:         "spec.ipam.podCIDRs",
		`{"metadata":{"name":"n"},"spec":{"addresses":[{"ip":7}]}}`:        "spec.addresses[0].ip",
		`{"metadata":{"name":"n","annotations":{"a":true}},"spec":{}}`:     "metadata.annotations",
		`{"metadata":{"name":"n"},"spec":{"encryption":{"key":"secret"}}}`: "spec.encryption.key",
	} {
		v, _, err := encode(cluster1, decode(t, object))
		if err == nil || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "CiliumNode n") {
			t.Errorf("%s: %s, %v", object, v, err)
		}
	}
}

// NSYN-16: a node that is larger than a key can be goes without annotations, of which each character may have six bytes, and without labels.
func TestNodesLargerThanAKey(t *testing.T) {
	markup := strings.Repeat("<", 255<<10)
	labels := map[string]string{}
	for i := range 16_000 {
		labels[fmt.Sprintf("%s-%d", strings.Repeat("l", 50), i)] = strings.Repeat("v", 60)
	}
	for want, c := range map[string]struct {
		annotations, labels map[string]string
		fits                bool
	}{
		"":                               {map[string]string{publicKey: "abc=", "x": strings.Repeat("x", 255<<10)}, nil, true},
		"without annotations":            {map[string]string{publicKey: "abc=", "x": markup}, map[string]string{"a": "b"}, true},
		"without annotations and labels": {map[string]string{publicKey: "abc=", "x": markup}, labels, true},
	} {
		text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": "n", "annotations": c.annotations, "labels": c.labels}})
		value, leftOut, err := encode(cluster1, decode(t, string(text)))
		if err != nil || leftOut != want || len(value) <= kvstore.MaxValue != c.fits || !strings.Contains(string(value), `"WireguardPubKey":"abc="`) {
			t.Errorf("%d bytes %q, want %q: %v", len(value), leftOut, want, err)
		}
	}
}

// NSYN-19: of more addresses and CIDRs than a node can have the first are in the value, and kept in memory.
func TestEncodeTheFirstOfMany(t *testing.T) {
	list := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	const spec = `{"metadata":{"name":"n"},"spec":{"addresses":[%s],"ipam":{"podCIDRs":[%s],"pools":{"allocated":[{"pool":"a","cidrs":[%s]},{"pool":"b","cidrs":[%s]}]}}}}`
	const address, v4, v6 = `{"type":"InternalIP","ip":"10.0.0.1"}`, `"10.0.1.0/24"`, `"fd00::/64"`
	for name, c := range map[string]struct {
		addresses, cidrs, a, b int
		cut                    bool
		want                   [3]int // addresses, CIDRs of IPv4, those of IPv6
	}{
		"no more":          {1024, 4096, 4000, 96, false, [3]int{1024, 8096, 96}},
		"addresses":        {1025, 1, 0, 0, true, [3]int{1024, 1, 0}},
		"CIDRs":            {1, 4097, 0, 0, true, [3]int{1, 4096, 0}},
		"CIDRs of a pool":  {1, 1, 60_000, 1, true, [3]int{1, 4097, 0}},
		"of several pools": {1, 0, 4000, 97, true, [3]int{1, 4000, 96}},
	} {
		n := decode(t, fmt.Sprintf(spec, list(c.addresses, address), list(c.cidrs, v4), list(c.a, v4), list(c.b, v6)))
		text, leftOut, err := encode(cluster1, n)
		if err != nil {
			t.Fatal(err)
		}
		got := [3]int{strings.Count(string(text), "InternalIP"), strings.Count(string(text), `"10.0.1.0"`), strings.Count(string(text), `"fd00::"`)}
		if want := "without addresses after the first 1024, and CIDRs after the first 4096"; got != c.want || (leftOut == want) != c.cut || (leftOut == "") == c.cut {
			t.Errorf("%s: %v, want %v; %q", name, got, c.want, leftOut)
		}
	}
}
