// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// events are the messages of the Events of a reason about a Service.
func (s *server) events(name, reason string) (messages []string) {
	s.t.Helper()
	list, err := s.core.CoreV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range list.Items {
		messages = append(messages, e.Message)
	}
	return messages
}

// LBIP-33; numbers 4.2 of the contract's tenants.md: an address that two Services show at the start is the older one's, and an Event on each
// names the other. Services that may share theirs have none, and a restart repeats none.
func TestServerContestedAddress(t *testing.T) {
	s := newServer(t)
	s.service("a") // created in the same second as b or earlier, and first by name
	s.service("b")
	for i, name := range []string{"c", "d"} {
		s.service(name, annotate(sharingKeyAnnotation, "both"), port(int32(80+i)))
		s.setStatus(name, shown("10.0.10.9"), satisfied())
	}
	s.setStatus("a", shown("10.0.10.7"), satisfied())
	s.setStatus("b", shown("10.0.10.7"), satisfied())
	s.pool("blue", cidrs("10.0.10.0/24"))
	o := s.start()
	s.want("a", "10.0.10.7")
	s.want("b", "10.0.10.8") // the smallest gap
	names := func(name, reason, other string) bool {
		all := s.events(name, reason)
		return len(all) == 1 && strings.Contains(all[0], "10.0.10.7") && strings.Contains(all[0], s.namespace+"/"+other)
	}
	operatortest.Eventually(t, "each has an Event", func() bool { return names("b", "AddressOfAnother", "a") && names("a", "AddressContested", "b") })
	o.Stop()
	o = s.start()
	s.service("e", annotate(requestAnnotation, "10.0.10.200"))
	s.want("e", "10.0.10.200")
	s.want("c", "10.0.10.9")
	for _, name := range []string{"a", "b", "c", "d"} {
		lost, kept := s.events(name, "AddressOfAnother"), s.events(name, "AddressContested")
		if len(lost) != map[string]int{"b": 1}[name] || len(kept) != map[string]int{"a": 1}[name] {
			t.Errorf("%s has the Events %q and %q", name, lost, kept)
		}
	}
	s.env.CheckHealthy(o)
}
