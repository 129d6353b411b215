// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"testing"
)

// Slices are made of pods and of the identities that the operator makes for them,
// without CiliumEndpoints; and a pod that goes leaves them.
func TestSlicesOfPods(t *testing.T) {
	w := newTenants(t)
	w.define()
	w.addNode("n1") // pods of nodes without Cilium have no identities
	w.node = "n1"
	o, _ := w.run("slim", nil, "--identity-management-mode=operator", "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim", "--ces-slice-mode=fcfs")
	o.leads()
	w.label("shop", nil)
	for i := range 3 {
		name := fmt.Sprint("web-", i)
		w.begin("shop", name, map[string]string{"app": name})
		w.runs("shop", name, fmt.Sprint("10.255.0.", i+1))
	}
	eventually(t, "all pods are in a slice", func() bool { return len(w.slicedIn()) == 3 })
	w.end("shop", "web-1")
	eventually(t, "one of them is not any more", func() bool { return len(w.slicedIn()) == 2 && len(w.slicedIn()["shop/web-1"]) == 0 })
}

// Number 30 of the contract's endpoint-slices.md: the same with the identities that agents make. The operator makes none.
func TestSlicesOfPodsWithIdentitiesOfAgents(t *testing.T) {
	w := newTenants(t)
	w.define()
	w.addNode("n1")
	w.node = "n1"
	w.label("shop", nil)
	o, _ := w.run("slim", nil, "--identity-management-mode=agent", "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim")
	o.leads()
	for i := range 3 {
		name := fmt.Sprint("web-", i)
		labels := map[string]string{"app": name}
		w.begin("shop", name, labels)
		w.runs("shop", name, fmt.Sprint("10.255.0.", i+1))
		w.identity(fmt.Sprint(1000+i), w.set("shop", labels))
	}
	eventually(t, "all pods are in a slice", func() bool { return len(w.slicedIn()) == 3 })
	if all := w.identities(); len(all) != 3 {
		t.Errorf("there are %d identities, three of them of agents", len(all))
	}
}
