// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"os"
	"strings"
	"testing"
)

func TestMeasureGiants(t *testing.T) {
	const many = 20
	for _, part := range []struct {
		name   string
		giants []giant
	}{{"gateways", gatewayGiants}, {"ingresses", ingressGiants}, {"core", coreGiants}, {"policies", policyGiants()}, {"cilium", ciliumGiants}} {
		if only := os.Getenv("PART"); only != "" && only != part.name {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			l := newLargest(t)
			l.launch("GOGC=20")
			l.servesOthers("nothing yet")
			for _, g := range part.giants {
				if w := os.Getenv("WHAT"); w != "" && !strings.Contains(g.String(), w) {
					continue
				}
				l.rests("before", restsWithin)
				base, _ := l.o.memory()
				l.o.forgetPeak()
				before := l.o.worked()
				c := &crowd{largest: l, giant: g, namespaces: []string{""}, n: g.n}
				if !g.global {
					c.namespaces = []string{attacker}
				}
				c.makeAll(many)
				l.rests(g.String(), restsWithin)
				now, peak := l.o.memory()
				t.Logf("MEASURED %-60s %7d bytes each, kept %7d KiB each, base %4d now %4d peak %4d MiB, CPU %5.1f s", g.String(), c.size, (now-base)/many>>10, base>>20, now>>20, peak>>20, (l.o.worked() - before).Seconds())
				c.keep(0)
				for _, namespace := range c.namespaces {
					c.drop(g.beside, namespace)
				}
			}
		})
	}
}
