// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// addressesUpTo are so many addresses, in the order in which this duty writes them.
func addressesUpTo(n int) (ips []string) {
	for i := range n {
		ips = append(ips, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff))
	}
	slices.Sort(ips)
	return ips
}

func showing(s *service, ips []string) {
	for _, ip := range ips {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, ingress{IP: slim.MakeString(ip)})
	}
	s.Trim()
}

// NIPAM-17, K8S-24: of a status with many addresses the first are kept, and what tells it from others.
func TestSwollenStatus(t *testing.T) {
	for n, isCut := range map[int]bool{mostAddresses: false, mostAddresses + 1: true, 100_000: true} {
		s, all := &service{}, addressesUpTo(n)
		showing(s, all)
		if s.Status.isCut() != isCut || len(current(s.Status.LoadBalancer.Ingress)) != mostAddresses {
			t.Errorf("of %d there are %d, and it is cut: %t", n, len(s.Status.LoadBalancer.Ingress), s.Status.isCut())
		}
		if !s.Status.shows(all) || s.Status.shows(all[:n-1]) || s.Status.shows(append(all[:n-1:n-1], "10.255.0.1")) {
			t.Errorf("it is not known whether there are those %d", n)
		}
		if last := all[n-1]; isCut && (!s.Status.mayHide(last) || s.Status.mayHide("10.255.0.1") != s.Status.isVast) {
			t.Errorf("of %d it is not known whether %s is one", n, last)
		}
		if size := slim.SizeOf(s); size > 256<<10 {
			t.Errorf("of %d addresses %d bytes are kept", n, size)
		}
	}
	s := &service{}
	s.Status.LoadBalancer.Ingress = make([]ingress, 1)
	showing(s, addressesUpTo(mostAddresses))
	if s.Status.shows(addressesUpTo(mostAddresses)) {
		t.Error("a host name counts for nothing")
	}
}

// NIPAM-6, NIPAM-14, NIPAM-17: in a cluster with more nodes than addresses are kept of a status, a Service that has them all is not read, a younger one gets
// what the older does not have, and one that may keep them loses those alone at which a port of it is not its own.
func TestAddressesOfManyNodes(t *testing.T) {
	const many = 3 * mostAddresses
	ips := addressesUpTo(many)
	all, err := stream.NewLocal[node]()
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*node
	const free = "10.200.0.1" // the older one does not select it
	for i, ip := range append(ips[:many:many], free) {
		pool := "a"
		if ip == free {
			pool = "b"
		}
		nodes = append(nodes, testNode(fmt.Sprint("node-", i), labelled("pool", pool), ip))
	}
	all.Replace(nodes...)
	tls := port(443, "TCP")
	older, younger := newService("aa", "web", 1, "", tls), newService("bb", "web", 2, "", tls)
	older.Annotations.Labels = slim.MakeLabels(map[string]string{selectorAnnotation: "pool=a"})
	holder, held := newService("cc", "web", 1, ips[many-1], port(80, "TCP")), newService("dd", "web", 2, "", port(80, "TCP"))
	held.Annotations.Labels = slim.MakeLabels(map[string]string{selectorAnnotation: "!!"})
	showing(older, ips)
	showing(held, ips)
	services, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	services.Replace(older, younger, holder, held)
	client := &statusClient{}
	c := newController(params{
		Cluster: cluster.DefaultConfig, Services: services, Nodes: all, Client: client,
		Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("nodeipam"), Log: slog.New(slog.DiscardHandler),
	})
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[*service][]string{older: ips, younger: {free}, held: ips[:many-1]} {
		has := []any{}
		if s != younger {
			for _, ip := range ips {
				has = append(has, map[string]any{"ip": ip})
			}
		}
		client.writes, client.object = 0, &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": s.Name, "resourceVersion": s.ResourceVersion.String()},
			"status":   map[string]any{"loadBalancer": map[string]any{"ingress": has}},
		}}
		if _, err := c.Reconcile(t.Context(), s.Key()); err != nil || !slices.Equal(client.ips(), want) {
			t.Errorf("%s has %d addresses, want %d (%v)", s.Key(), len(client.ips()), len(want), err)
		}
		if s == older && client.writes > 0 {
			t.Errorf("%s is read", s.Key())
		}
	}
	client.writes = 0
	for range 5 { // changes of Nodes
		if result, err := c.Reconcile(t.Context(), held.Key()); err != nil || client.writes > 0 || result.RequeueAfter <= 0 {
			t.Errorf("one that keeps what it has is read %d times in a minute more: %v (%v)", client.writes, result, err)
		}
	}
}
