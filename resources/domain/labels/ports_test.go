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

// ID-32; ID-E19; numbers 23 to 26 of the contract's identities.md.
func TestNamedPorts(t *testing.T) {
	const key = "gen:io.cilium.k8s.named-ports"
	long := func(i int) labels.NamedPort {
		return labels.NamedPort{Name: fmt.Sprintf("long-name-%03d", i), Protocol: "SCTP", Port: 10000}
	}
	for name, test := range map[string]struct {
		ports []labels.NamedPort
		want  labels.Set
	}{
		"none": {nil, labels.Set{}},
		"one":  {[]labels.NamedPort{{"grpc", "TCP", 4245}}, labels.Set{key: "grpc.TCP.4245"}},
		"by name, not by text": {
			[]labels.NamedPort{{"metrics", "TCP", 9153}, {"dns-tcp", "TCP", 53}, {"dns", "UDP", 53}},
			labels.Set{key: "dns.UDP.53_dns-tcp.TCP.53_metrics.TCP.9153"},
		},
		"one name twice: the later one": {[]labels.NamedPort{{"http", "TCP", 80}, {"http", "TCP", 8080}}, labels.Set{key: "http.TCP.8080"}},
		"no protocol, upper case":       {[]labels.NamedPort{{"Web", "", 80}, {"dns", "udp", 53}}, labels.Set{key: "dns.UDP.53_web.TCP.80"}},
		"what does not count": {
			[]labels.NamedPort{{"", "TCP", 1}, {"zero", "TCP", 0}, {"high", "TCP", 65536}, {"icmp", "ICMP", 1}, {"under_score", "TCP", 1}, {"123", "TCP", 1}, {"sixteen-letters-", "TCP", 1}, {"a--b", "TCP", 1}},
			labels.Set{},
		},
		"one that does not count keeps an earlier one": {[]labels.NamedPort{{"http", "TCP", 80}, {"http", "ICMP", 81}}, labels.Set{key: "http.TCP.80"}},
		"more than a value holds": {
			[]labels.NamedPort{long(1), long(2), long(3), long(4), long(5)},
			labels.Set{
				key:        "long-name-001.SCTP.10000_long-name-002.SCTP.10000",
				key + "-1": "long-name-003.SCTP.10000_long-name-004.SCTP.10000",
				key + "-2": "long-name-005.SCTP.10000",
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
		byName := map[string]labels.NamedPort{}
		for range r.IntN(12) {
			name := strings.Repeat("p", 1+r.IntN(14)) + fmt.Sprint(r.IntN(3))
			byName[name] = labels.NamedPort{Name: name, Protocol: []string{"TCP", "UDP", "SCTP"}[r.IntN(3)], Port: 1 + r.Int32N(65535)}
		}
		all := slices.Collect(maps.Values(byName))
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
		var text []string
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			text = append(text, byName[name].String())
		}
		if before, ok := seen[set.String()]; ok && before != fmt.Sprint(text) {
			t.Fatalf("%s and %s have the same labels", before, text)
		}
		seen[set.String()] = fmt.Sprint(text)
	}
}
