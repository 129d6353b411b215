// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/skep-operator/skep/resources/domain/envoy/refusetest"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ENV-23, ING-14; number 3.1 of the contract's tenants.md: Envoy refuses the routes of all for one regular expression that is larger than it takes. It is left out, and so is a
// host whose wildcard would be one; others are served. What Envoy takes is an option.
func TestExpressionsBeyondEnvoysLimit(t *testing.T) {
	long := strings.Repeat("l", 60) + "." + strings.Repeat("m", 60)
	of := func(namespace, name, host string, paths ...string) *ingress {
		i := &ingress{}
		i.Namespace, i.Name, i.CreationTimestamp, i.Spec.IngressClassName = slim.MakeString(namespace), name, 1, new(class)
		i.Spec.Rules = []networkingv1.IngressRule{pathsOf(host, networkingv1.PathTypeImplementationSpecific, paths...)}
		return i
	}
	secure := of("aa", "secure", "*."+long)
	secure.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"*." + long}, SecretName: "certificate"}}
	secure.Spec.Rules, secure.Spec.DefaultBackend = nil, &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	all := []*ingress{secure, of("aa", "large", "a.test", "/[a-z]{200}", "/small/[0-9]+"), of("aa", "wide", "*."+long, "/x"), of("bb", "web", "b.test", "/v[0-9]+/(users|orders)/[^/]+"), of("bb", "wide", "*.b.test", "/.*")}
	for most, want := range map[int]int{100: 1, 300: 2, 0: 2} {
		p := newPacking(t)
		p.c.Envoy.MaxRegexProgramSize = most
		p.pack(all...)
		if err := refusetest.CheckPrograms(p.config, cmp.Or(int64(most), math.MaxInt64)); err != nil {
			t.Errorf("with %d instructions: %v", most, err)
		}
		if n := len(routes(p.config, "insecure", "a.test")); n != want {
			t.Errorf("with %d instructions %d paths are served", most, n)
		}
		if len(routes(p.config, "insecure", "b.test")) != 1 || len(routes(p.config, "insecure", "*.b.test")) != 1 {
			t.Errorf("with %d instructions what others have is not served", most)
		}
		if is := len(routes(p.config, "insecure", "*."+long)) > 0; is != (want == 2) {
			t.Errorf("with %d instructions the long host is served: %t", most, is)
		}
		for _, i := range all {
			reasons := []string{}
			for _, n := range p.c.shared.ingested[i.Key()].notices {
				reasons = append(reasons, n.Reason)
			}
			if is := slices.Contains(reasons, "NotTranslated"); is != (want == 1 && i.Namespace.String() == "aa") {
				t.Errorf("with %d instructions %s has %v", most, i.Key(), reasons)
			}
		}
	}
}
