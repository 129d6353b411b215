// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"testing"
	"time"

	"github.com/skep-operator/skep/runtime/benchtest"
)

func TestBenchmarks(t *testing.T) { benchtest.Once(t, BenchmarkOwners) }

// BenchmarkOwners translates a thousand objects of a hundred namespaces, with hosts of one owner each (ENV-33) and joined, at first and again after a change
// of nothing: with hosts of their own; beside wildcards of ten namespaces; and with rules for all hosts, which only names decide.
func BenchmarkOwners(b *testing.B) {
	for _, hosts := range []string{"own", "wildcards", "all"} {
		model := benchmarkModel(hosts)
		for _, mode := range []string{"owned", "joined"} {
			o := Options{Service: Name{"x", "y"}, Owners: mode == "owned", SecretsNamespace: "s"}
			translate := func(b *testing.B, of *Translator) {
				if _, err := of.Translate(model, o); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(hosts+"/"+mode+"/first", func(b *testing.B) {
				for b.Loop() {
					translate(b, &Translator{})
				}
			})
			b.Run(hosts+"/"+mode+"/again", func(b *testing.B) {
				of := &Translator{}
				translate(b, of)
				for b.Loop() {
					translate(b, of)
				}
			})
		}
	}
}

func benchmarkModel(hosts string) (m Model) {
	for i := range 1000 {
		namespace := fmt.Sprint("ns-", i%100)
		of := Claim{Name{namespace, fmt.Sprint("web-", i)}, time.Unix(int64(1000+i), 0)}
		var routes []*Route
		for _, path := range []string{"/", "/a", "/b"} {
			routes = append(routes, &Route{Source: of.Of, Path: Match{Prefix, path}, NoBackend: 503, Backends: []Backend{{Name: Name{namespace, "s"}, Port: "80"}}})
		}
		serve := func(host string, hasTLS bool) {
			l := Listener{Claim: of, Hostname: host, Port: 80, Routes: routes}
			if hasTLS {
				l.Port, l.TLS, l.Secrets = 443, true, []Name{{namespace, fmt.Sprint("tls-", i)}}
			}
			m.HTTP = append(m.HTTP, l)
		}
		serve(fmt.Sprintf("a%d.shop.test", i), false)
		if i%2 == 0 {
			serve(fmt.Sprintf("a%d.shop.test", i), true)
		}
		if hosts == "wildcards" && i%99 == 50 { // one of each of ten namespaces
			serve("*.shop.test", false)
			serve("*.shop.test", true)
		}
		if hosts == "all" {
			serve("", false)
		}
	}
	return m
}
