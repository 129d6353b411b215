// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func withPorts(all ...servicePort) func(*serviceObject) {
	return func(o *serviceObject) { o.Spec.Ports = all }
}

// The ports of a name server.
var dnsTCP, dnsUDP = servicePort{53, slim.MakeString("TCP")}, servicePort{53, slim.MakeString("UDP")}

// message is what is wrong with a Service.
func (p *plan) message(name string) string {
	return p.services[slim.Key{Namespace: "ns", Name: name}].result.message
}

// Numbers 38 and 43 of the contract's lb-ipam.md; LBIP-22: in which releases ports of one number share an address.
func TestSharingByRelease(t *testing.T) {
	const refused = "already_allocated_incompatible_service"
	key := annotated(sharingKeyAnnotation, "dns")
	for i, r := range release.All() {
		for _, option := range []bool{false, true} {
			shared := cluster.DefaultConfig
			shared.Release = r
			p := newPlan(t, newPool("p", 1, blocks("10.0.10.0/24")))
			p.settings.numbersOnly = newSettings(Config{BPFLBProtoDiff: option}, shared).numbersOnly
			p.sync()
			p.put(newService("dns-tcp", key, withPorts(dnsTCP)))
			p.put(newService("dns-udp", key, withPorts(dnsUDP)))
			p.want("dns-tcp", "10.0.10.0")
			if i >= 2 || option {
				p.want("dns-udp", "10.0.10.0")
				continue
			}
			p.want("dns-udp", "10.0.10.1")
			p.put(newService("asks", key, withPorts(dnsUDP), annotated(requestAnnotation, "10.0.10.0")))
			p.want("asks", refused)
			if got := p.message("asks"); !strings.HasSuffix(got, "Reason: same port") {
				t.Errorf("%s: it says %q", r, got)
			}
		}
	}
}

// Number 41 of the contract's lb-ipam.md; LBIP-20 and LBIP-22: one of two ports is the same.
func TestOnePortInCommon(t *testing.T) {
	key := annotated(sharingKeyAnnotation, "web")
	tcp80, tcp443 := servicePort{80, slim.MakeString("TCP")}, servicePort{443, slim.MakeString("TCP")}
	p := newPlan(t, newPool("p", 1, blocks("10.0.10.0/24")))
	p.sync()
	p.put(newService("a", key, withPorts(tcp80, tcp443)))
	p.put(newService("b", key, withPorts(tcp443)))
	p.want("a", "10.0.10.0")
	p.want("b", "10.0.10.1")
	p.put(newService("asks", key, withPorts(tcp443), annotated(requestAnnotation, "10.0.10.0")))
	p.want("asks", "already_allocated_incompatible_service")
	if got := p.message("asks"); !strings.HasSuffix(got, "Reason: same port and protocol") {
		t.Errorf("it says %q", got)
	}
}

// Number 47 of the contract's lb-ipam.md; LBIP-25: a block grows. What has an address is not written, and what waits has the lowest that is free.
func TestBlockGrows(t *testing.T) {
	o := newPool("p", 1, blocks("10.0.10.0/25"))
	p := newPlan(t, o)
	for i := range 128 {
		p.put(newService(fmt.Sprint("s", i), showing(fmt.Sprint("10.0.10.", i))))
	}
	p.put(newService("waits"))
	p.sync()
	p.want("waits", "out_of_ips")
	p.writes = nil
	p.upsertPool(next(o, blocks("10.0.10.0/24")))
	p.storeWrites()
	p.want("s5", "10.0.10.5")
	p.want("s9", "10.0.10.9")
	p.want("waits", "10.0.10.128")
	if !slices.Equal(p.writes, []string{"waits"}) {
		t.Errorf("it wrote %q", p.writes)
	}
}

// Number 48 of the contract's lb-ipam.md; LBIP-16 and LBIP-25: a block shrinks, while z waits since its pool is switched off.
func TestBlockShrinks(t *testing.T) {
	off := blocks("10.0.10.0/24")
	off.Disabled = true
	o := newPool("p", 1, off)
	p := newPlan(t, o)
	made := func(at int) func(*serviceObject) {
		return func(o *serviceObject) { o.CreationTimestamp = slim.Time(at) }
	}
	p.put(newService("x", made(1), showing("10.0.10.70")), newService("y", made(2), showing("10.0.10.5")), newService("z", made(3)))
	p.sync()
	p.want("z", "no_pool")
	p.writes = nil
	p.upsertPool(next(o, blocks("10.0.10.64/26")))
	p.storeWrites()
	p.want("x", "10.0.10.70")
	p.want("y", "10.0.10.64")
	p.want("z", "10.0.10.65")
	if slices.Contains(p.writes, "x") {
		t.Errorf("it wrote %q", p.writes)
	}
}

// Number 52 of the contract's lb-ipam.md; LBIP-25: of three Services on one address the selector of the pool selects two from then on.
func TestOneOfThreeIsSelectedNoMore(t *testing.T) {
	label := func(color string) func(*serviceObject) {
		return func(o *serviceObject) { o.Labels = slim.MakeLabels(map[string]string{"color": color}) }
	}
	key := annotated(sharingKeyAnnotation, "k")
	o := newPool("p", 1, blocks("10.0.10.0/24"))
	p := newPlan(t, o)
	p.sync()
	for i, color := range []string{"red", "red", "blue"} {
		name := fmt.Sprint("s", i)
		p.put(newService(name, key, label(color), withPorts(servicePort{Port: int32(80 + i)})))
		p.want(name, "10.0.10.0")
	}
	p.writes = nil
	selective := blocks("10.0.10.0/24")
	selective.ServiceSelector = &v2.LabelSelector{MatchLabels: map[string]string{"color": "red"}}
	p.upsertPool(next(o, selective))
	p.storeWrites()
	p.want("s0", "10.0.10.0")
	p.want("s1", "10.0.10.0")
	p.want("s2", "no_pool")
	if !slices.Equal(p.writes, []string{"s2"}) {
		t.Errorf("it wrote %q", p.writes)
	}
}

// Number 50 of the contract's lb-ipam.md; LBIP-8: of two pools with free addresses the first by name serves, also after restarts.
func TestServerOrderOfPools(t *testing.T) {
	s := newServer(t)
	s.pool("p2", cidrs("10.0.20.0/24"))
	s.pool("p1", cidrs("10.0.10.0/24"))
	for i := range 3 {
		o := s.start()
		name := fmt.Sprint("s", i)
		s.service(name)
		s.want(name, fmt.Sprint("10.0.10.", i))
		o.Stop()
	}
}

// Number 51 of the contract's lb-ipam.md: the names that the metrics have from 1.17 on.
func TestServerMetrics(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	o := s.start()
	s.service("a")
	s.service("b")
	operatortest.Eventually(t, "two addresses are used", func() bool {
		return o.Metric("lbipam_ips_available", "blue") == 254 && o.Metric("lbipam_ips_used", "blue") == 2
	})
	unsatisfied := func() bool {
		return slices.ContainsFunc(o.Samples("lbipam_services_unsatisfied"), func(m operatortest.Sample) bool {
			return m.Name == "lbipam_services_unsatisfied" && m.Value == 0
		})
	}
	operatortest.Eventually(t, "no Service is without an address, which is said", unsatisfied)
}
