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
