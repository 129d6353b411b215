// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// testNode is a Node with addresses: internal ones, or external ones with "+" in front.
func testNode(name string, change func(*node), texts ...string) *node {
	n := &node{}
	n.Name = name
	for _, text := range texts {
		a := slim.NodeAddress{Type: slim.MakeString(string(corev1.NodeInternalIP)), Address: text}
		if text[0] == '+' {
			a = slim.NodeAddress{Type: slim.MakeString(string(corev1.NodeExternalIP)), Address: text[1:]}
		}
		n.Status.Addresses = append(n.Status.Addresses, a)
	}
	if change != nil {
		change(n)
	}
	return n
}

func labelled(pairs ...string) func(*node) {
	return func(n *node) {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		n.Labels = slim.MakeLabels(m)
	}
}

func tainted(key string) func(*node) {
	return func(n *node) { n.Spec.Taints = []taint{{slim.MakeString("other")}, {slim.MakeString(key)}} }
}

func terminating(n *node) { n.DeletionTimestamp = slim.MakeTime(time.Now()) }

// NIPAM-2, NIPAM-3 and NIPAM-4; NIPAM-E1 to NIPAM-E3.
func TestAddresses(t *testing.T) {
	mixed := []*node{testNode("node-1", nil, "10.0.0.1", "+2001::1"), testNode("node-2", nil, "10.0.0.2")}
	for name, c := range map[string]struct {
		nodes    []*node
		selector string
		on       map[string]bool
		families []string
		want     []string
	}{
		"NIPAM-E1, IPv4":            {mixed, "", nil, []string{"IPv4"}, []string{"10.0.0.1", "10.0.0.2"}},
		"NIPAM-E1, IPv6":            {mixed, "", nil, []string{"IPv6"}, []string{"2001::1"}},
		"external of any family":    {mixed, "", nil, []string{"IPv4", "IPv6"}, []string{"2001::1"}},
		"no families is both":       {mixed, "", nil, nil, []string{"2001::1"}},
		"no nodes":                  {nil, "", nil, []string{"IPv4"}, nil},
		"no address of the family":  {mixed[1:], "", nil, []string{"IPv6"}, nil},
		"sorted as text, each once": {[]*node{testNode("a", nil, "10.0.0.9", "10.0.0.10"), testNode("b", nil, "10.0.0.9", "10.0.0.2")}, "", nil, []string{"IPv4"}, []string{"10.0.0.10", "10.0.0.2", "10.0.0.9"}},
		"what is no address": {[]*node{testNode("a", func(n *node) {
			n.Status.Addresses = append(n.Status.Addresses, slim.NodeAddress{Type: slim.MakeString("Hostname"), Address: "10.0.0.7"})
		}, "host-1", "fe80::1%eth0", "1.2.3", "::ffff:10.0.0.3", "2001:0:0::1")}, "", nil, nil, []string{"10.0.0.3", "2001::1"}},

		"NIPAM-13": {[]*node{testNode("a", nil, "+127.0.0.1", "+0.0.0.0", "+224.0.0.1", "+169.254.169.254", "+fe80::1", "+::1", "10.0.0.1"), testNode("b", nil, "10.0.0.2")}, "", nil, nil, []string{"10.0.0.1", "10.0.0.2"}},
		"NIPAM-13, too many": {[]*node{testNode("a", nil, "10.0.0.9", "10.0.0.8", "10.0.0.7", "10.0.0.6", "10.0.0.5", "10.0.0.4", "10.0.0.3", "10.0.0.2", "10.0.0.1", "fd00::1")}, "", nil, nil,
			[]string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8", "10.0.0.9", "fd00::1"}},

		"NIPAM-E2, set":     {[]*node{testNode("a", labelled("zone", "a"), "10.0.0.1"), testNode("b", labelled("zone", "b"), "10.0.0.2"), testNode("c", nil, "10.0.0.3")}, "zone in (a,b)", nil, nil, []string{"10.0.0.1", "10.0.0.2"}},
		"NIPAM-E2, two":     {[]*node{testNode("a", labelled("zone", "a", "ingress-ready", "true"), "10.0.0.1"), testNode("b", labelled("zone", "b"), "10.0.0.2")}, "ingress-ready=true,zone in (a,b)", nil, nil, []string{"10.0.0.1"}},
		"NIPAM-E2, nothing": {mixed, "zone=a", nil, nil, nil},

		"excluded by label": {[]*node{testNode("a", labelled(corev1.LabelNodeExcludeBalancers, "false"), "+1.1.1.1"), testNode("b", nil, "10.0.0.2")}, "", nil, nil, []string{"10.0.0.2"}},
		"to be deleted":     {[]*node{testNode("a", tainted(excludedBy), "+1.1.1.1"), testNode("b", tainted("node.kubernetes.io/not-ready"), "10.0.0.2")}, "", nil, nil, []string{"10.0.0.2"}},
		"being deleted":     {[]*node{testNode("a", terminating, "+1.1.1.1"), testNode("b", nil, "10.0.0.2")}, "", nil, nil, []string{"10.0.0.2"}},
		"NIPAM-E3":          {mixed, "", map[string]bool{"node-2": true, "node-3": true}, []string{"IPv4"}, []string{"10.0.0.2"}},
		"no endpoints":      {mixed, "", map[string]bool{}, []string{"IPv4"}, nil},
	} {
		selector, err := labels.Parse(c.selector)
		if err != nil {
			t.Fatal(err)
		}
		if got := addresses(slices.Values(c.nodes), selector, c.on, c.families); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Addresses depend on the set of nodes, not on their order, and those of an ineligible node do not matter.
func TestAddressesOfAnyOrder(t *testing.T) {
	texts := []string{"10.0.0.1", "10.0.0.2", "2001::1", "2001::2", "+192.0.2.1", "+2001:db8::1", "x"}
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var all []*node
		for range rnd.IntN(6) {
			all = append(all, testNode("n", nil, texts[rnd.IntN(len(texts))], texts[rnd.IntN(len(texts))]))
		}
		families := [][]string{{"IPv4"}, {"IPv6"}, {"IPv6", "IPv4"}}[rnd.IntN(3)]
		want := addresses(slices.Values(all), labels.Everything(), nil, families)
		if !slices.IsSorted(want) || len(slices.Compact(slices.Clone(want))) != len(want) {
			t.Fatalf("seed %d: %v is not sorted, or has an address twice", seed, want)
		}
		more := append(slices.Clone(all), testNode("gone", terminating, "+192.0.2.9", "10.0.0.9"))
		rnd.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
		if got := addresses(slices.Values(more), labels.Everything(), nil, families); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v in another order, %v before", seed, got, want)
		}
	}
}

func testService(name string, change func(*service)) *service {
	s := &service{}
	s.Namespace, s.Name = slim.MakeString("shop"), name
	s.Spec.Type, s.Spec.LoadBalancerClass = slim.MakeString("LoadBalancer"), slim.MakeString(class)
	if change != nil {
		change(s)
	}
	return s
}

// Number 44 of the contract's lb-ipam.md; NIPAM-1.
func TestServed(t *testing.T) {
	byDefault := cluster.Config{DefaultLBServiceIPAM: cluster.NodeIPAM}
	ofProxy := cluster.Config{DefaultLBServiceIPAM: cluster.NodeIPAM, K8sServiceProxyName: "x"}
	without := func(s *service) { s.Spec.LoadBalancerClass = slim.String{} }
	proxied := func(s *service) {
		without(s)
		s.Labels.Labels = slim.MakeLabels(map[string]string{proxyNameLabel: "x"})
	}
	for name, c := range map[string]struct {
		config cluster.Config
		change func(*service)
		want   bool
	}{
		"class":                    {cluster.DefaultConfig, nil, true},
		"no class":                 {cluster.DefaultConfig, without, false},
		"no class, by default":     {byDefault, without, true},
		"class, by default":        {byDefault, nil, true},
		"other class":              {byDefault, func(s *service) { s.Spec.LoadBalancerClass = slim.MakeString("io.cilium/l2-announcer") }, false},
		"no load balancer":         {byDefault, func(s *service) { s.Spec.Type = slim.MakeString("NodePort") }, false},
		"being deleted":            {byDefault, func(s *service) { s.DeletionTimestamp = slim.MakeTime(time.Now()) }, false},
		"another proxy's":          {byDefault, proxied, false},
		"our proxy's":              {ofProxy, proxied, true},
		"not our proxy's":          {ofProxy, without, false},
		"another proxy's of class": {byDefault, func(s *service) { proxied(s); s.Spec.LoadBalancerClass = slim.MakeString(class) }, true},
	} {
		if got := isServed(testService("s", c.change), c.config); got != c.want {
			t.Errorf("%s: served %t", name, got)
		}
	}
}

// NIPAM-4: an endpoint counts unless it is known not to be ready.
func TestNodesWithEndpoints(t *testing.T) {
	ready, unready := true, false
	of := func(name string, ready *bool) (e endpoint) {
		e.NodeName, e.Conditions.Ready = slim.MakeString(name), ready
		return e
	}
	one := &endpointSlice{Endpoints: []endpoint{of("a", &ready), of("b", &unready), of("c", nil)}}
	two := &endpointSlice{Endpoints: []endpoint{of("b", &unready), of("d", &unready), of("d", &ready)}}
	got := withEndpoints(slices.Values([]*endpointSlice{one, two}))
	for name, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		if got[name] != want {
			t.Errorf("node %s: %t, want %t", name, got[name], want)
		}
	}
}
