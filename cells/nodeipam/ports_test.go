// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func newService(namespace, name string, created int64, ips string, ports ...servicePort) *service {
	s := &service{}
	s.Namespace, s.Name, s.CreationTimestamp = slim.MakeString(namespace), name, slim.Time(created)
	s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.Ports = slim.MakeString("LoadBalancer"), slim.MakeString(class), ports
	for ip := range strings.FieldsSeq(ips) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, ingress{IP: slim.MakeString(ip)})
	}
	s.Trim()
	return s
}

func port(n int32, protocol string) servicePort {
	return servicePort{Port: n, Protocol: slim.MakeString(protocol)}
}

// NIPAM-14: a port at which a component of the cluster listens is given to no Service.
func TestPortsOfComponents(t *testing.T) {
	var many []servicePort
	for n := range int32(maxPorts + 1) {
		many = append(many, port(20_000+n, "TCP"))
	}
	for name, test := range map[string]struct {
		ports []servicePort
		want  string
	}{
		"of people":      {[]servicePort{port(80, "TCP"), port(443, "UDP")}, ""},
		"API server":     {[]servicePort{port(80, "TCP"), port(6443, "TCP")}, "port 6443 of the nodes is that of the API server"},
		"UDP of that":    {[]servicePort{port(6443, "UDP")}, ""},
		"kubelet":        {[]servicePort{port(10250, "TCP")}, "port 10250 of the nodes is that of the kubelet"},
		"tunnels":        {[]servicePort{port(8472, "UDP")}, "port 8472 of the nodes is that of agents"},
		"TCP of tunnels": {[]servicePort{port(8472, "TCP")}, ""},
		"SCTP":           {[]servicePort{port(6443, "SCTP")}, ""},
		"many":           {many, "it has more than 1000 ports"},
	} {
		if got := componentOf(newService("bb", "x", 1, "", test.ports...)); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// NIPAM-14; number 1.8 of the contract's tenants.md is of the same kind: of two Services of different namespaces with one port the older has it at a node.
func TestPortsOfOlderServices(t *testing.T) {
	local, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	http := port(80, "TCP")
	other := newService("aa", "class", 10, "10.0.0.3", http)
	other.Spec.LoadBalancerClass = slim.MakeString("another")
	all := []*service{
		newService("aa", "web", 10, "10.0.0.1 10.0.0.2", http, port(443, "TCP")),
		newService("aa", "younger", 20, "10.0.0.1", http),
		newService("bb", "web", 15, "", http),
		newService("bb", "same", 30, "", http),
		newService("bb", "other", 15, "", port(81, "TCP")),
		newService("bb", "datagrams", 15, "", port(80, "UDP")),
		newService("cc", "oldest", 5, "", http),
		other,
	}
	local.Replace(all...)
	c := &controller{synced: true, last: map[slim.Key]*service{}}
	if c.services, err = local.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"aa/web": "[10.0.0.1 10.0.0.2 10.0.0.3] ", "bb/web": "[] aa/class", "bb/other": "[10.0.0.1 10.0.0.2 10.0.0.3] ",
		"bb/datagrams": "[10.0.0.1 10.0.0.2 10.0.0.3] ", "cc/oldest": "[10.0.0.1 10.0.0.2 10.0.0.3] ", "aa/younger": "[10.0.0.1 10.0.0.2 10.0.0.3] ",
	} {
		namespace, name, _ := strings.Cut(key, "/")
		s, _ := c.services.Get(slim.Key{Namespace: namespace, Name: name})
		left, holder := c.free(s, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"})
		if got := fmt.Sprint(left, " ", holder); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	var log strings.Builder
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	local.Upsert(newService("bb", "component", 15, "10.0.0.9", port(10250, "TCP")))
	local.Upsert(newService("bb", "left", 30, "10.0.0.1 10.0.0.9", http)) // as the original left it
	if c.logLosers(); strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "services=2") {
		t.Errorf("a leader that begins logs %q", &log)
	}
	for joins, want := range map[bool]string{false: "[] [10.0.0.9]", true: "[10.0.0.9] [10.0.0.1 10.0.0.9]"} {
		c.Config.NodeIPAMJoinNamespaces = joins
		var got []string
		for _, name := range []string{"component", "left"} {
			s, _ := c.services.Get(slim.Key{Namespace: "bb", Name: name})
			left, why := c.allowed(s, current(s.Status.LoadBalancer.Ingress))
			if got = append(got, fmt.Sprint(left)); (why.message == "") != joins {
				t.Errorf("with the option %t, %s: %q", joins, name, why.message)
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("with the option %t they have %s, want %s", joins, text, want)
		}
	}
	c.Config.NodeIPAMJoinNamespaces = true
	log.Reset()
	if c.logLosers(); log.Len() > 0 || c.serviceChanged(stream.Change[service]{Kind: stream.Upsert, Key: all[0].Key(), Object: all[0]}) != nil {
		t.Errorf("with the option, a leader that begins logs %q, or a change wakes others", &log)
	}
	c.Config.NodeIPAMJoinNamespaces = false
	local.Delete(slim.Key{Namespace: "bb", Name: "component"})
	local.Delete(slim.Key{Namespace: "bb", Name: "left"})
	log.Reset()
	if c.logLosers(); log.Len() > 0 {
		t.Errorf("where nothing changes, a leader that begins logs %q", &log)
	}
	if got := fmt.Sprint(c.serviceChanged(stream.Change[service]{Kind: stream.Upsert, Key: all[0].Key(), Object: all[0]})); strings.Count(got, "bb/") != 2 || strings.Contains(got, "cc/") {
		t.Errorf("a change of aa/web concerns %s", got)
	}
	again := newService("aa", "web", 1000, "", http) // deleted, and created again
	if got := fmt.Sprint(c.serviceChanged(stream.Change[service]{Kind: stream.Upsert, Key: again.Key(), Object: again})); !strings.Contains(got, "bb/same") {
		t.Errorf("aa/web that is another one concerns %s", got)
	}
	c.last[again.Key()] = all[0]
	for i, ports := range [][]servicePort{{port(81, "TCP")}, nil} {
		now := newService("aa", "web", 10, "", ports...)
		got := fmt.Sprint(c.serviceChanged(stream.Change[service]{Kind: stream.Upsert, Key: now.Key(), Object: now}))
		if strings.Contains(got, "bb/same") != (i == 0) || !strings.Contains(got, "bb/other") {
			t.Errorf("%d: a change of aa/web, which has had other ports, concerns %s", i, got)
		}
	}
}

// NIPAM-14, K1 of the contract's tenants.md: a port of the nodes is also what a node port is, and the older of two Services has it.
func TestNodePortsOfOlderServices(t *testing.T) {
	local, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	withNodePort := func(s *service, n int32) *service {
		s.Spec.Ports = []servicePort{{Port: 80, NodePort: n, Protocol: slim.MakeString("TCP")}}
		s.Trim()
		return s
	}
	older := withNodePort(newService("aa", "web", 10, ""), 30080)
	older.Spec.Type, older.Spec.Ports = slim.MakeString("NodePort"), nil
	younger := withNodePort(newService("aa", "late", 100, ""), 30081)
	local.Replace(older, younger, newService("bb", "x", 50, "", port(30080, "TCP")), newService("bb", "y", 50, "", port(30081, "TCP")),
		newService("bb", "udp", 50, "", port(30080, "UDP")), newService("aa", "own", 50, "", port(30080, "TCP")))
	c := &controller{synced: true, last: map[slim.Key]*service{}}
	if c.services, err = local.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"bb/x": "[] aa/web", "bb/y": "[10.0.0.1] ", "bb/udp": "[10.0.0.1] ", "aa/own": "[10.0.0.1] "} {
		namespace, name, _ := strings.Cut(key, "/")
		s, _ := c.services.Get(slim.Key{Namespace: namespace, Name: name})
		left, holder := c.free(s, []string{"10.0.0.1"})
		if got := fmt.Sprint(left, " ", holder); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if got := fmt.Sprint(c.serviceChanged(stream.Change[service]{Kind: stream.Upsert, Key: older.Key(), Object: older})); got != "[bb/x]" {
		t.Errorf("a change of aa/web concerns %s", got)
	}
}

// NIPAM-14: an older Service counts also where it is not served here, but its status shows addresses of nodes: those that it had before
// default-lb-service-ipam was another one, or those of another load balancer. What it no longer shows is free.
func TestPortsOfServicesThatAreNotServed(t *testing.T) {
	local, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	http := port(80, "TCP")
	classless := newService("aa", "web", 10, "10.0.0.1", http)
	classless.Spec.LoadBalancerClass = slim.String{}
	elsewhere := newService("cc", "pool", 5, "192.0.2.1", http)
	elsewhere.Spec.LoadBalancerClass = slim.MakeString("example.com/other")
	younger := newService("bb", "x", 20, "", http)
	local.Replace(classless, elsewhere, younger)
	c := &controller{synced: true, last: map[slim.Key]*service{}}
	c.Cluster.DefaultLBServiceIPAM = cluster.NoLBIPAM
	if c.services, err = local.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, holder := c.free(younger, []string{"10.0.0.1", "10.0.0.2"}); fmt.Sprintf("%v %s", left, holder) != "[10.0.0.2] aa/web" {
		t.Errorf("it gets %q, and %q has the others", left, holder)
	}
	if left, holder := c.free(newService("aa", "older", 1, "", http), []string{"10.0.0.1"}); len(left) != 1 || holder != "" {
		t.Errorf("an older one gets %q, and %q has the others", left, holder)
	}
	if got := c.serviceChanged(stream.Change[service]{Kind: stream.Upsert, Key: classless.Key(), Object: classless}); fmt.Sprint(got) != "[bb/x]" {
		t.Errorf("a change of it concerns %s", got)
	}
	if got := c.serviceChanged(stream.Change[service]{Kind: stream.Upsert, Key: elsewhere.Key(), Object: elsewhere}); fmt.Sprint(got) != "[bb/x]" {
		t.Errorf("a change of that which another load balancer serves concerns %s: none that is not served here", got)
	}
	without := newService("aa", "web", 10, "", http)
	without.Spec.LoadBalancerClass = slim.String{}
	local.Upsert(without)
	if left, holder := c.free(younger, []string{"10.0.0.1"}); len(left) != 1 || holder != "" {
		t.Errorf("then it gets %q, and %q has the others", left, holder)
	}
}
