// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// What is kept of an Ingress that is too large to be served (ING-29), together less than 32 KiB.
const (
	mostHosts     = 256      // that stay its own
	mostHostBytes = 16 << 10 // of their names together
	mostOfText    = 256      // bytes of an annotation, and of the class: what is valid is shorter
)

// CutDown implements slim.Cutter: the class, the annotations that this duty reads, and the first hosts stay.
func (i *ingress) CutDown() {
	kept := networkingv1.IngressSpec{}
	if name := i.Spec.IngressClassName; name != nil {
		kept.IngressClassName = new(shortened(*name))
	}
	kept.Rules, kept.TLS = namedBy(&i.Spec)
	annotations := map[string]string{}
	for key, value := range i.Annotations.All() {
		if isSetting(key) {
			annotations[key] = shortened(value)
		}
	}
	i.Labels, i.Annotations.Labels, i.Spec, i.Status = slim.Labels{}, slim.MakeLabels(annotations), kept, networkingv1.IngressStatus{}
}

// shortened is the beginning of a text that may have the size of an object. It is no valid value where the whole text is none.
func shortened(text string) string { return strings.Clone(text[:min(len(text), mostOfText)]) }

// isSetting reports whether the duty reads an annotation of an Ingress, and does not just pass it on.
func isSetting(key string) bool {
	if name, is := strings.CutPrefix(key, prefix); is {
		return slices.Contains(settingNames, name)
	}
	if name, is := strings.CutPrefix(key, alias); is {
		return slices.Contains(settingNames, name)
	}
	return key == classAnnotation
}

// namedBy are the first hosts that an Ingress names, each once: in rules, and for TLS those alone that no rule has. The last rule has no
// host if the Ingress serves all hosts.
func namedBy(s *networkingv1.IngressSpec) (rules []networkingv1.IngressRule, tls []networkingv1.IngressTLS) {
	first := firstHosts{seen: map[string]bool{"": true}}
	for _, r := range s.Rules {
		first.add(r.Host)
	}
	ofRules := len(first.all)
	for _, item := range s.TLS {
		for _, host := range item.Hosts {
			first.add(host)
		}
	}
	rules = make([]networkingv1.IngressRule, 0, ofRules+1)
	for _, host := range first.all[:ofRules] {
		rules = append(rules, networkingv1.IngressRule{Host: host})
	}
	if servesAll(s) {
		rules = append(rules, networkingv1.IngressRule{})
	}
	if hosts := first.all[ofRules:]; len(hosts) > 0 {
		tls = []networkingv1.IngressTLS{{Hosts: append(make([]string, 0, len(hosts)), hosts...)}}
	}
	return rules, tls
}

// firstHosts are distinct hosts, up to a number and a size. Those that are seen are not added.
type firstHosts struct {
	all   []string
	seen  map[string]bool
	bytes int
}

// add adds a host, unless it is there, no host can have the name, or there are enough: of those that come later none is added either.
func (f *firstHosts) add(host string) {
	if f.bytes > mostHostBytes || len(f.all) == mostHosts || f.seen[host] || !isHost(host) {
		return
	}
	if f.bytes += len(host); f.bytes > mostHostBytes {
		return
	}
	f.seen[host] = true
	f.all = append(f.all, strings.Clone(host))
}

// servesAll reports whether an Ingress serves hosts that it does not name: by a default backend, or a path of a rule without a host.
func servesAll(s *networkingv1.IngressSpec) bool {
	if b := s.DefaultBackend; b != nil && b.Service != nil {
		return true
	}
	return slices.ContainsFunc(s.Rules, func(r networkingv1.IngressRule) bool {
		return r.Host == "" && r.HTTP != nil && slices.ContainsFunc(r.HTTP.Paths, func(p networkingv1.HTTPIngressPath) bool {
			return p.PathType != nil && p.Backend.Service != nil
		})
	})
}

// cut is an Ingress that is too large to be kept: the hosts that it would have stay its own.
func (in *ingester) cut() {
	port := in.ports.http
	if in.settings.passthrough {
		port = in.ports.passthrough
	}
	add := func(host string) {
		in.model.HTTP = append(in.model.HTTP, envoy.Listener{Claim: claimOf(in.of), Hostname: host, Port: port, Absent: true})
	}
	for _, rule := range in.of.Spec.Rules {
		if rule.Host != "" || !in.settings.passthrough {
			add(rule.Host)
		}
	}
	if !in.settings.passthrough { // which is by rules alone
		for _, item := range in.of.Spec.TLS {
			for _, host := range item.Hosts {
				add(host)
			}
		}
	}
	in.notices = append(in.notices, tooLarge(in.of.CutError()))
}

// tooLarge is for the user of an Ingress that is not served.
func tooLarge(why error) envoyres.Notice {
	return envoyres.Notice{Reason: "LeftOut", Message: "it is not served: " + why.Error(), Degrades: true}
}
