// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
)

// LBIP-34: a class of Cilium that is not served, and annotations that are not known, have an Event each, once; those of others have none.
func TestServerHints(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/24"))
	s.service("typo", class("io.cilium/bgp-controlplane"))
	s.service("off", class(classL2))
	s.service("foreign", class("example.com/lb"))
	s.service("key", annotate("lbipam.cilium.io/ip", "10.0.10.9"), annotate("io.cilium/lb-ipam-ip", "10.0.10.9"))
	s.service("right", annotate(requestAlias, "10.0.10.8"), annotate(sharingKeyAnnotation, "x"), annotate("lbipam.example.com/ips", "y"))
	o := s.start()
	about := func(name, reason string) string { return strings.Join(s.events(name, reason), " and ") }
	operatortest.Eventually(t, "what has no effect has an Event", func() bool {
		return strings.HasPrefix(about("typo", "ClassNotServed"), "the load-balancer class io.cilium/bgp-controlplane is not known: ") &&
			about("off", "ClassNotServed") == "the load-balancer class io.cilium/l2-announcer is not served: --enable-l2-announcements is off" &&
			strings.HasPrefix(about("key", "UnknownAnnotation"), "2 annotations are not known, and have no effect: io.cilium/lb-ipam-ip, lbipam.cilium.io/ip; ")
	})
	s.editService("key", label("a", "b"))
	s.service("last", annotate(requestAnnotation, "10.0.10.200"))
	s.want("last", "10.0.10.200")
	s.want("right", "10.0.10.8")
	for name, reasons := range map[string][]string{
		"typo": {"UnknownAnnotation"}, "off": {"UnknownAnnotation"}, "key": {"ClassNotServed"},
		"foreign": {"ClassNotServed", "UnknownAnnotation"}, "right": {"ClassNotServed", "UnknownAnnotation"},
	} {
		for _, reason := range reasons {
			if text := about(name, reason); text != "" {
				t.Errorf("%s has the Event %s: %s", name, reason, text)
			}
		}
	}
	if n := len(s.events("key", "UnknownAnnotation")); n != 1 {
		t.Errorf("%d Events about one annotation", n)
	}
	s.env.CheckHealthy(o)
}
