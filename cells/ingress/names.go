// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"strings"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// mostNames is how many hosts Ingresses that share a load balancer may name together. One configuration has space for a fifth of them; what is known of each takes some
// 500 bytes, whether it is served or not (ING-30).
const mostNames = 50_000

// namesIn is how many hosts an Ingress names, each as often as it does.
func namesIn(i *ingress) int {
	n := len(i.Spec.Rules)
	for _, item := range i.Spec.TLS {
		n += len(item.Hosts)
	}
	return n
}

// crowdOf are the Ingresses of those that share a load balancer whose names are too many, those of the namespace that has most first.
func crowdOf(all []*ingress, most int) map[slim.Key]bool {
	total := 0
	for _, i := range all {
		total += namesIn(i)
	}
	if total <= most {
		return nil
	}
	parts := make([]envoyres.Part, len(all))
	for n, i := range all {
		parts[n] = envoyres.Part{Object: i.Key(), Created: i.CreationTimestamp, Size: namesIn(i)}
	}
	crowd := map[slim.Key]bool{}
	for _, key := range envoyres.LeaveOut(parts, most) {
		crowd[key] = true
	}
	return crowd
}

// tooManyNames tells the user of an Ingress that it is not served, and has no hosts.
func tooManyNames(i *ingress) envoyres.Notice {
	return envoyres.Notice{Reason: "LeftOut", Degrades: true, Message: fmt.Sprintf(
		"it is not served, and its hosts are not kept from others: with the %d that it names the Ingresses that share the load balancer would name more than %d, and no namespace names more of them: name fewer, or use the annotation %sloadbalancer-mode: %s",
		namesIn(i), mostNames, prefix, dedicatedMode)}
}

// What is left out of an Ingress first is all but its names, as if that was younger than any Ingress. Where that does not do, wider names of others answer for its hosts.
const (
	ageOfRules  slim.Time = 1 << 40
	namesPrefix           = "names of "
)

func namesKey(key slim.Key) slim.Key {
	return slim.Key{Namespace: key.Namespace, Name: namesPrefix + key.Name}
}

// parts are what of an Ingress can be left out of a configuration.
func (s *shared) parts(key slim.Key, e cached) []envoyres.Part {
	created, names := e.of.CreationTimestamp, s.weighed(key, e.names)
	return []envoyres.Part{
		{Object: namesKey(key), Created: created, Size: names},
		{Object: key, Created: created + ageOfRules, Size: s.weighed(key, e.size) - names},
	}
}

// leaveOut chooses what a configuration goes without. What has no space for its names has none for the rest.
func leaveOut(parts []envoyres.Part, most int) map[slim.Key]bool {
	out := map[slim.Key]bool{}
	for _, id := range envoyres.LeaveOut(parts, most) {
		out[id] = true
		if name, is := strings.CutPrefix(id.Name, namesPrefix); is {
			out[slim.Key{Namespace: id.Namespace, Name: name}] = true
		}
	}
	return out
}

// kept is what there is of an Ingress in the configuration.
func (s *shared) kept(key slim.Key, e cached) (m envoy.Model) {
	if !s.out[key] {
		return e.model
	}
	m = e.absent(e.of)
	for i := range m.HTTP {
		m.HTTP[i].Unclosed = s.out[namesKey(key)]
	}
	return m
}

// keptSize is about how many bytes that is.
func (s *shared) keptSize(key slim.Key, e cached) int {
	switch {
	case !s.out[key]:
		return s.weighed(key, e.size)
	case !s.out[namesKey(key)]:
		return s.weighed(key, e.names)
	}
	return 0
}

// mostWeight is how much more than alone an Ingress counts at most: it is left out long before.
const mostWeight = 1 << 30

// weigh has the Ingresses of a namespace count for more.
func (s *shared) weigh(namespace string, by float64) {
	if s.weights == nil {
		s.weights = map[string]float64{}
	}
	s.weights[namespace] = min(mostWeight, max(1, s.weights[namespace])*by)
}

// weighed is a size of an Ingress as it counts.
func (s *shared) weighed(key slim.Key, size int) int {
	return int(float64(size) * max(1, s.weights[key.Namespace]))
}

// forget drops the limit, since something of a namespace is gone or smaller: it is that for what there was, there may be space again, and all is tried anew.
func (s *shared) forget(namespace string) {
	delete(s.weights, namespace)
	s.limit = 0
}

// retry is forget for the Ingresses that have changed and are smaller than before, or may be so together with others of their namespace.
func (s *shared) retry() {
	for key, e := range s.ingested {
		if e.size < e.was.size || e.names < e.was.names || e.was.size > 0 && s.weights[key.Namespace] > 1 {
			s.forget(key.Namespace)
		}
		e.was = measured{}
		s.ingested[key] = e
	}
}
