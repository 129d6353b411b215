// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"slices"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/health"
)

// off are the options with which agents make no CiliumNodes.
var off = []string{"--enable-ciliumnode-crd=false", "--ipam=delegated-plugin", "--identity-allocation-mode=crd"}

func TestCellOnce(t *testing.T) {
	server := "--k8s-api-server=http://127.0.0.1:1"
	celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"),
		celltest.Args(append(slices.Clone(off), server)...), celltest.OffArgs(append(slices.Clone(off), server, "--nodes-gc-interval=0")...))
}

// Number 19 of the contract's nodes.md; NGC-10: all CiliumNodes go, once in a process, and what is made later stays.
func TestOnce(t *testing.T) {
	w := newWorld(t)
	w.ciliumNode("one") // its Node is there
	w.ciliumNode("c1")
	w.ciliumNode("c2", owned)
	w.ciliumNode("c3", annotated("true"))
	fails := w.proxy.Answer(t, 503, clustertest.Match{Verbs: []string{"delete"}, Names: []string{"c1"}})
	o := w.start(off...)
	w.gone("one", "c2", "c3")
	w.stay("c1")
	fails.Remove(t)
	w.gone("c1")
	ended := func() bool { return o.Level("nodegc.once.job-clean") == health.Stopped }
	operatortest.Eventually(t, "it has ended", ended)
	w.ciliumNode("later")
	o.ReenterTerm()
	operatortest.Eventually(t, "it has ended again", ended)
	w.stay("later")
	for _, r := range w.proxy.Requests(t, 0) {
		if r.Verb == "watch" && (r.Resource == "nodes" || r.Resource == "ciliumnodes") {
			t.Errorf("%s %s", r.Verb, r.Path)
		}
	}
}

// Number 19 of the contract's nodes.md: with an IPAM mode that needs CiliumNodes the option has no effect, and they are collected as ever.
func TestOptionWithoutEffect(t *testing.T) {
	w := newWorld(t)
	w.ciliumNode("one")
	w.ciliumNode("c1")
	w.ciliumNode("c2", annotated("true"))
	w.start("--enable-ciliumnode-crd=false", "--ipam=kubernetes")
	w.gone("c1")
	w.stay("one", "c2")
}
