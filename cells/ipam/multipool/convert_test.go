// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// MPOOL-41: podCIDRs become CIDRs of the pool beside what the node has, and all else stays.
func TestConvert(t *testing.T) {
	for name, test := range map[string]struct {
		ipam, want map[string]any
		problem    string
	}{
		"plain": {
			ipam: map[string]any{"podCIDRs": []any{"10.40.1.0/24", "fd00::1:0/112"}, "min-allocate": int64(4)},
			want: map[string]any{"pools": map[string]any{"allocated": allocatedOf("default: 10.40.1.0/24 fd00::1:0/112")}, "min-allocate": int64(4)},
		},
		"canonical": {
			ipam: map[string]any{"podCIDRs": []any{"10.40.1.7/024"}},
			want: map[string]any{"pools": map[string]any{"allocated": allocatedOf("default: 10.40.1.0/24")}},
		},
		"with pools": {
			ipam: map[string]any{"podCIDRs": []any{"10.40.1.0/24", "10.40.2.0/24"}, "pools": map[string]any{
				"requested": requestedOf("default: 10"), "allocated": allocatedOf("a: 10.50.0.0/24", "default: 10.40.1.0/24 10.40.9.0/24")}},
			want: map[string]any{"pools": map[string]any{
				"requested": requestedOf("default: 10"), "allocated": allocatedOf("a: 10.50.0.0/24", "default: 10.40.1.0/24 10.40.9.0/24 10.40.2.0/24")}},
		},
		"nothing":            {ipam: map[string]any{"podCIDRs": []any{}}, want: map[string]any{"podCIDRs": []any{}}},
		"no CIDR":            {ipam: map[string]any{"podCIDRs": []any{"xyz"}}, problem: "invalid CIDR address: xyz"},
		"no list":            {ipam: map[string]any{"podCIDRs": int64(7)}, problem: "podCIDRs"},
		"pools are no pools": {ipam: map[string]any{"podCIDRs": []any{"10.40.1.0/24"}, "pools": map[string]any{"allocated": []any{int64(7)}}}, problem: "cannot be decoded"},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"ipam": test.ipam}}}
			err := convert(u, "default")
			if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
				t.Fatalf("%v, want %q", err, test.problem)
			}
			if got, _, _ := unstructured.NestedMap(u.Object, "spec", "ipam"); err == nil && !reflect.DeepEqual(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// MPOOL-42: of two nodes that have a part of each other's podCIDRs the older one is converted.
func TestConversionsOfTheOlder(t *testing.T) {
	node := func(name, created, ipam string) *ciliumio.Node {
		codec, err := slim.JSON[ciliumio.Node]()
		if err != nil {
			t.Fatal(err)
		}
		n := &ciliumio.Node{}
		text := `{"metadata":{"name":"` + name + `","uid":"` + name + `","resourceVersion":"7","creationTimestamp":"` + created + `"},"spec":{"ipam":` + ipam + `}}`
		if err := codec.DecodeJSON([]byte(text), n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	got := map[string]string{}
	for _, c := range conversions([]*ciliumio.Node{
		node("young", "2026-01-04T00:00:00Z", `{"podCIDRs":["10.0.0.0/25"]}`),
		node("old", "2026-01-01T00:00:00Z", `{"podCIDRs":["10.0.0.0/24"]}`),
		node("pools", "2026-01-01T00:00:00Z", `{"pools":{"allocated":[{"pool":"p","cidrs":["10.0.1.0/24"]}]}}`),
		node("second", "2026-01-02T00:00:00Z", `{"podCIDRs":["10.0.1.0/24"]}`),
		node("garbage", "2026-01-02T00:00:00Z", `{"podCIDRs":["x"]}`),
		node("vast", "2026-01-01T00:00:00Z", `{"podCIDRs":["0.0.0.0/0"]}`),
		node("last", "2026-01-05T00:00:00Z", `{"podCIDRs":["10.0.2.0/24"]}`),
		node("none", "2026-01-05T00:00:00Z", `{}`),
	}) {
		got[c.name] = c.obstacle
	}
	want := map[string]string{
		"old": "", "last": "", "vast": "CIDR 0.0.0.0/0 has already been allocated to the older CiliumNode old", "garbage": "invalid CIDR address: x",
		"young":  "CIDR 10.0.0.0/25 has already been allocated to the older CiliumNode old",
		"second": "CIDR 10.0.1.0/24 has already been allocated to the older CiliumNode pools",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
