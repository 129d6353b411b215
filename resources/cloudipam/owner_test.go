// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
)

// node is a Node as the API server has it.
func (w *world) node(ref k8s.Ref) (*unstructured.Unstructured, error) {
	w.tally["node read"]++
	switch is := w.provided[ref.Name].(type) {
	case error:
		return nil, is
	case string:
		spec := map[string]any{}
		if is != "" {
			spec["providerID"] = is
		}
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": ref.Name}, "spec": spec}}, nil
	}
	return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
}

// rivals is a calm world with the older node n0, whose agent names the instance of others, and the younger one n1.
type rivals struct {
	*world
	t     *testing.T
	order []string // in which nodes are processed
}

func newRivals(t *testing.T, provided map[string]any, order ...string) *rivals {
	t.Helper()
	r := &rivals{calm(t, 4, func(w *world) { w.provided = provided }), t, order}
	r.finish()
	return r
}

// join registers the node n1.
func (r *rivals) join() {
	r.now = r.now.Add(time.Hour)
	r.register("n1", false)
	r.nodes["n1"].Spec.IPAM = v2.IPAMSpec{PreAllocate: 4}
	r.now = r.now.Add(time.Minute)
	r.finish()
}

// name has the agent of a node name an instance.
func (r *rivals) name(node, instance string) {
	r.edited(node, func(n *v2.CiliumNode) { n.Spec.InstanceID = instance })
	r.finish()
}

func (r *rivals) edited(node string, edit func(*v2.CiliumNode)) {
	n := r.nodes[node].DeepCopy()
	edit(n)
	r.stored(n)
}

// restart has another leader.
func (r *rivals) restart() {
	r.leader.fence.Close()
	r.lead()
	r.finish()
}

// finish processes the nodes until all of them have been read and written.
func (r *rivals) finish() {
	r.t.Helper()
	for range 8 {
		for _, name := range r.order {
			if r.nodes[name] == nil {
				r.leader.op.Hide(name)
			}
			r.leader.show(name)
			if err := r.leader.op.Reconcile(r.ctx, name); err != nil {
				r.t.Logf("%s: %v", name, err)
			}
		}
		if err := r.leader.op.ReadWanted(r.ctx); err != nil {
			r.t.Fatal(err)
		}
	}
}

// wantOwner checks that a node gets what it lacks, and that the other one has nothing of its instance, and that its status names the first.
func (r *rivals) wantOwner(when, owner, other string) {
	r.t.Helper()
	count := len(r.nodes[owner].Spec.IPAM.Pool) + 1
	r.edited(owner, func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = count })
	r.finish()
	is, not := r.nodes[owner], r.nodes[other]
	if text := is.Status.IPAM.OperatorStatus.Error; len(is.Spec.IPAM.Pool) != count || text != "" {
		r.t.Errorf("%s: %s has %v, want %d addresses: %q", when, owner, poolOf(is), count, text)
	}
	for _, a := range poolOf(is) {
		if r.cloud.Owners()[a] != is.Spec.InstanceID {
			r.t.Errorf("%s: %s has %s, which is of %s", when, owner, a, r.cloud.Owners()[a])
		}
		if slices.Contains(poolOf(not), a) {
			r.t.Errorf("%s: %s has %s, too", when, other, a)
		}
	}
	if text := not.Status.IPAM.OperatorStatus.Error; !strings.Contains(text, "belongs to CiliumNode "+owner) {
		r.t.Errorf("%s: the error of %s is %q", when, other, text)
	}
}

// CIPAM-41, K4 of the contract's tenants.md: an agent that writes the instance of another node into its CiliumNode, which is older, gets nothing of that, and
// the other one goes on: in this term, in others, in whatever order the nodes are processed, and in the first second of the node.
func TestAnInstanceStaysWithTheNodeThatHasIt(t *testing.T) {
	for _, order := range [][]string{{"n0", "n1"}, {"n1", "n0"}} {
		r := newRivals(t, nil, order...)
		r.join()
		r.name("n0", "i-n1")
		r.wantOwner("in a term", "n1", "n0")
		for range 2 {
			r.restart()
			r.wantOwner("after a restart", "n1", "n0")
		}
		n := r.nodes["n1"].DeepCopy()
		n.UID, n.CreationTimestamp.Time = "00000000-0000-4000-8000-00000000ffff", r.now
		n.Spec.IPAM.Pool, n.Status = nil, v2.CiliumNodeStatus{}
		r.stored(n)
		r.finish()
		r.wantOwner("created again", "n1", "n0")

		r.cloud.Run("i-next")
		r.name("n1", "i-next")
		if text := r.nodes["n0"].Status.IPAM.OperatorStatus.Error; text != "" {
			t.Errorf("the instance that another node has left: %q", text)
		}
		for _, name := range order {
			for _, a := range poolOf(r.nodes[name]) {
				if owner := r.cloud.Owners()[a]; owner != r.nodes[name].Spec.InstanceID {
					t.Errorf("%s has %s, which is of %s", name, a, owner)
				}
			}
		}
	}
}

// The instance is not read yet when the nodes are processed, since one of them is of this second.
func TestAnInstanceIsReadBeforeItIsDecidedWhoseItIs(t *testing.T) {
	for _, order := range [][]string{{"n0", "n1"}, {"n1", "n0"}} {
		r := newRivals(t, nil, order...)
		r.join()
		r.edited("n0", func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-n1" })
		r.nodes["n1"].CreationTimestamp.Time = r.now
		r.restart()
		r.wantOwner("after a restart in the same second", "n1", "n0")
	}
}

// The instance is that of the Node whose spec.providerID names it, which agents cannot write: also if another one has named it first, shows its interfaces, or
// both. What another node has no part in changes nothing.
func TestAnInstanceIsThatOfTheNodeOfItsProviderID(t *testing.T) {
	for _, order := range [][]string{{"n0", "n1"}, {"n1", "n0"}} {
		provided := map[string]any{"n0": "aws:///zone-a/i-n0", "n1": "aws:///zone-a/i-n1"}
		r := newRivals(t, provided, order...)
		r.join()
		if r.tally["node read"] != 0 {
			t.Error("Nodes are read while no two CiliumNodes name one instance")
		}
		r.edited("n0", func(n *v2.CiliumNode) {
			n.Spec.InstanceID, n.Spec.IPAM.Pool, n.Status.ENI = "i-n1", r.nodes["n1"].Spec.IPAM.Pool, r.nodes["n1"].Status.ENI
		})
		r.restart()
		r.edited("n0", func(n *v2.CiliumNode) { n.Spec.IPAM.Pool = nil }) // what it wrote itself
		r.wantOwner("while another one shows its interfaces", "n1", "n0")

		r.cloud.Run("i-n1b")
		r.name("n0", "i-n1b")
		provided["n1"] = "aws:///zone-a/i-n1b"
		r.now = r.now.Add(time.Minute)
		r.name("n1", "i-n1b")
		r.edited("n0", func(n *v2.CiliumNode) { n.Spec.IPAM.Pool = nil }) // which stays, and is not written again
		r.wantOwner("that another one has named first", "n1", "n0")
		reads := r.tally["node read"]
		r.finish()
		if r.tally["node read"] != reads {
			t.Error("Nodes are read for each attempt")
		}
	}
}

// An agent can create CiliumNodes that no Node is of, before that of the instance is there.
func TestAnInstanceIsThatOfANode(t *testing.T) {
	for _, order := range [][]string{{"n0", "n1"}, {"n1", "n0"}} {
		r := newRivals(t, map[string]any{"n1": "aws:///zone-a/i-n1"}, order...)
		r.join()
		r.edited("n0", func(n *v2.CiliumNode) {
			n.Spec.InstanceID, n.Spec.IPAM.Pool, n.Status.ENI = "i-n1", r.nodes["n1"].Spec.IPAM.Pool, r.nodes["n1"].Status.ENI
		})
		r.restart()
		r.edited("n0", func(n *v2.CiliumNode) { n.Spec.IPAM.Pool = nil }) // what it wrote itself
		r.wantOwner("while a CiliumNode without a Node shows its interfaces", "n1", "n0")
	}
}

// An agent can create thousands of CiliumNodes that name an instance: whose it is costs the node itself no more than two reads of Nodes, and all together no more
// than one for each in the time for which answers count. Where Nodes have no provider ID, that of a Node waits until all have been read.
func TestManyNameOneInstance(t *testing.T) {
	const many = 150
	for id, reads := range map[string]int{"aws:///zone-a/i-n1": many + 1, "": 2 * (many + 1)} { // the latter also after a minute
		order := []string{"n0"}
		for i := range many {
			order = append(order, fmt.Sprintf("no-node-%d", i))
		}
		r := newRivals(t, map[string]any{"n0": id, "n1": id}, "n0", "n1")
		for _, name := range order[1:] {
			r.register(name, false)
		}
		r.join()
		for _, name := range order[1:] {
			r.edited(name, func(n *v2.CiliumNode) {
				n.Spec.InstanceID, n.Spec.IPAM.Pool, n.Status.ENI = "i-n1", r.nodes["n1"].Spec.IPAM.Pool, r.nodes["n1"].Status.ENI
			})
		}
		r.order = append(order, "n1")
		r.restart()
		if id == "" {
			r.now = r.now.Add(time.Minute)
			r.finish()
		}
		before := len(r.nodes["n1"].Spec.IPAM.Pool)
		r.edited("n1", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = before + 1 })
		r.finish()
		if n := r.nodes["n1"]; len(n.Spec.IPAM.Pool) != before+1 || n.Status.IPAM.OperatorStatus.Error != "" {
			t.Errorf("with the ID %q it has %v: %q", id, poolOf(n), n.Status.IPAM.OperatorStatus.Error)
		}
		if got := r.tally["node read"]; got > reads {
			t.Errorf("with the ID %q: %d reads, want at most %d", id, got, reads)
		}
		for _, name := range order[1:] {
			if r.nodes[name].Status.IPAM.OperatorStatus.Error == "" {
				t.Fatalf("%s has no error", name)
			}
		}
	}
}

// CIPAM-41, K7 of the contract's tenants.md: a node whose own Node names the instance does not wait for the reads of Nodes of others, however few name it.
func TestOwnNodeIsReadFirst(t *testing.T) {
	r := newRivals(t, map[string]any{"n0": "aws:///zone-a/i-n0", "n1": "aws:///zone-a/i-n1"}, "n0", "n1")
	r.join()
	r.edited("n0", func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-n1" })
	r.leader.fence.Close()
	r.lead()
	r.leader.op.UseUpNodeReads()
	r.finish()
	before := len(r.nodes["n1"].Spec.IPAM.Pool)
	r.edited("n1", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = before + 1 })
	r.finish()
	if n := r.nodes["n1"]; len(n.Spec.IPAM.Pool) != before+1 {
		t.Errorf("it has %v: %q", poolOf(n), n.Status.IPAM.OperatorStatus.Error)
	}
}

// Where Nodes have no provider ID, or cannot be read, the rest decides. An error of the API server decides nothing.
func TestAnInstanceWithoutProviderIDs(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("role"))
	for name, provided := range map[string]map[string]any{
		"none":          {"n0": "", "n1": ""},
		"of one":        {"n0": "aws:///zone-a/i-n1", "n1": ""},
		"of another":    {"n0": "aws:///zone-a/i-n0", "n1": ""},
		"without cloud": {"n0": "k3s://n0", "n1": "k3s://n1"},
		"forbidden":     {"n0": forbidden, "n1": forbidden},
	} {
		r := newRivals(t, provided, "n0", "n1")
		r.join()
		r.name("n0", "i-n1")
		r.wantOwner(name, "n1", "n0")
		r.restart()
		r.wantOwner(name+", after a restart", "n1", "n0")
	}
	provided := map[string]any{"n0": "aws:///zone-a/i-n0", "n1": errors.New("timeout")}
	r := newRivals(t, provided, "n0", "n1")
	r.join()
	r.edited("n0", func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-n1" })
	changes := r.cloud.Changes()
	r.restart()
	if text := r.nodes["n1"].Status.IPAM.OperatorStatus.Error; text != "" || r.cloud.Changes() != changes {
		t.Errorf("%q, %d changes", text, r.cloud.Changes()-changes)
	}
	provided["n1"] = "aws:///zone-a/i-n1"
	r.finish()
	r.wantOwner("after an error", "n1", "n0")
}

// Of two nodes with one instance, of which neither shows it, the older has it; when it goes, the other one.
func TestAnInstanceOfTwoNewNodes(t *testing.T) {
	for _, order := range [][]string{{"n0", "n1"}, {"n1", "n0"}} {
		r := newRivals(t, nil, order...)
		r.now = r.now.Add(time.Hour)
		r.register("n1", false)
		r.nodes["n1"].Spec.IPAM = v2.IPAMSpec{PreAllocate: 4}
		r.cloud.Run("i-new")
		for _, name := range order {
			r.edited(name, func(n *v2.CiliumNode) {
				n.Spec.InstanceID, n.Spec.IPAM.Pool, n.Status = "i-new", nil, v2.CiliumNodeStatus{}
			})
		}
		r.finish()
		r.wantOwner("new", "n0", "n1")
		r.restart()
		r.wantOwner("after a restart", "n0", "n1")
		delete(r.nodes, "n0")
		r.finish()
		if n := r.nodes["n1"]; len(n.Spec.IPAM.Pool) < 4 || n.Status.IPAM.OperatorStatus.Error != "" {
			t.Errorf("%v: %q", poolOf(n), n.Status.IPAM.OperatorStatus.Error)
		}
	}
}

// A node that names the instance of another one, and leaves it, costs that no read.
func TestAnInstanceThatAnotherNodeLeaves(t *testing.T) {
	r := newRivals(t, nil, "n0", "n1")
	r.join()
	r.name("n0", "i-n1")
	r.edited("n0", func(n *v2.CiliumNode) { n.Spec.InstanceID = "i-n0" })
	r.edited("n1", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 7 })
	changes := r.cloud.Changes()
	for _, name := range r.order {
		r.leader.show(name)
		r.leader.reconcile(name)
	}
	if got := r.cloud.Changes() - changes; got != 1 {
		t.Errorf("%d changes before a read", got)
	}
}
