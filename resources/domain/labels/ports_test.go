// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/domain/labels"
)

func ofPorts(ports ...labels.NamedPort) labels.Set {
	return labels.Pod{
		Labels: maps.All(pairs{}), NamespaceLabels: maps.All(pairs{}), NamedPorts: slices.Values(ports),
	}.Identity(func(string, string) bool { return false })
}

// ID-32; ID-E19.
func TestNamedPorts(t *testing.T) {
	long := func(i int) labels.NamedPort {
		return labels.NamedPort{Name: fmt.Sprintf("a-long-name-%03d", i), Protocol: "SCTP", Port: 10000}
	}
	for name, test := range map[string]struct {
		ports []labels.NamedPort
		want  labels.Set
	}{
		"none": {nil, labels.Set{}},
		"one":  {[]labels.NamedPort{{"grpc", "TCP", 4245}}, labels.Set{"gen:io.cilium.k8s.named-ports": "grpc.TCP.4245"}},
		"several, in any order": {
			[]labels.NamedPort{{"metrics", "TCP", 9090}, {"dns", "UDP", 53}, {"dns", "TCP", 53}},
			labels.Set{"gen:io.cilium.k8s.named-ports": "dns.TCP.53_dns.UDP.53_metrics.TCP.9090"},
		},
		"one twice": {[]labels.NamedPort{{"a", "TCP", 1}, {"a", "TCP", 1}}, labels.Set{"gen:io.cilium.k8s.named-ports": "a.TCP.1"}},
		"more than a value holds": {
			[]labels.NamedPort{long(1), long(2), long(3), long(4), long(5)},
			labels.Set{
				"gen:io.cilium.k8s.named-ports":   "a-long-name-001.SCTP.10000_a-long-name-002.SCTP.10000",
				"gen:io.cilium.k8s.named-ports-1": "a-long-name-003.SCTP.10000_a-long-name-004.SCTP.10000",
				"gen:io.cilium.k8s.named-ports-2": "a-long-name-005.SCTP.10000",
			},
		},
	} {
		if diff := cmp.Diff(test.want, ofPorts(test.ports...)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Every set of ports has labels of its own, whatever the order, and every value is
// one that the API server takes.
func TestNamedPortsAreToldApart(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]string{}
	for range 2000 {
		ports := map[labels.NamedPort]bool{}
		for range r.IntN(12) {
			name := strings.Repeat("p", 1+r.IntN(14)) + fmt.Sprint(r.IntN(3))
			ports[labels.NamedPort{Name: name, Protocol: []string{"TCP", "UDP", "SCTP"}[r.IntN(3)], Port: 1 + r.Int32N(65535)}] = true
		}
		all := slices.Collect(maps.Keys(ports))
		set := ofPorts(all...)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if diff := cmp.Diff(set, ofPorts(all...)); diff != "" {
			t.Fatalf("another order: %s", diff)
		}
		for key, value := range set {
			if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
				t.Fatalf("%s: %v", key, wrong)
			}
		}
		text := fmt.Sprint(slices.SortedFunc(maps.Keys(ports), func(a, b labels.NamedPort) int { return strings.Compare(a.String(), b.String()) }))
		if before, ok := seen[set.String()]; ok && before != text {
			t.Fatalf("%s and %s have the same labels", before, text)
		}
		seen[set.String()] = text
	}
}
