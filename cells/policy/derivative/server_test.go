// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/operatortest"
)

const soon = "--derived-policies-refresh-interval=1s"

// DERIV-E1, DERIV-E2, DERIV-E4, DERIV-E7, DERIV-E8 and DERIV-E10.
func TestDerivedPolicies(t *testing.T) {
	w := newWorld(t)
	w.cloud.set("a", "192.168.1.1")
	w.cloud.set("wide", "10.0.0.7", "1.2.3.4", "10.0.0.7")
	test := w.create(w.policies, "test", `"spec":`+groupRule("a"))
	wide := w.create(w.clusterwide, "wide-"+w.Namespace, `"spec":`+groupRule("wide"))
	empty := w.create(w.policies, "empty", `"spec":`+groupRule("none"))
	o := w.start(w.Kubeconfig(), soon)

	w.cidrs(w.policies, test, "192.168.1.1/32")
	w.status(w.policies, "test", test+isOK)
	w.cidrs(w.clusterwide, wide, "1.2.3.4/32", "10.0.0.7/32")
	w.status(w.clusterwide, "wide-"+w.Namespace, wide+isOK)
	w.cidrs(w.policies, empty) // present, and empty as the API server has stored it
	w.status(w.policies, "empty", empty+isOK)
	d := w.get(w.policies, test)
	owners, labels := d.GetOwnerReferences(), d.GetLabels()
	if len(owners) != 1 || owners[0].Controller != nil || owners[0].BlockOwnerDeletion != nil || owners[0].Kind != "CiliumNetworkPolicy" || owners[0].Name != "test" ||
		labels["io.cilium.network.policy.kind"] != "derivative" || labels["io.cilium.network.policy.parent.uuid"] != string(owners[0].UID) {
		t.Errorf("owners %v and labels %v", owners, labels)
	}
	operatortest.Eventually(t, "three are counted", func() bool {
		return o.Metric("policy_derivative_derived_policies", "ok") == 3
	})

	// A refresh without a change writes nothing; all policies of one group cost one look-up.
	_, last := w.writes(0)
	before := w.cloud.lookups("a")
	operatortest.Eventually(t, "two refreshes", func() bool { return w.cloud.lookups("a") >= before+2 })
	if texts, _ := w.writes(last); len(texts) > 0 {
		t.Errorf("refreshes wrote %q", texts)
	}
	w.cloud.set("a", "192.168.1.2")
	w.cidrs(w.policies, test, "192.168.1.2/32")

	// What others change in a derived policy is undone at once, and a deleted one is restored.
	w.patch(w.policies, test, `{"specs":null,"spec":{"endpointSelector":{},"egress":[]},"metadata":{"labels":{"x":"y"}}}`)
	w.cidrs(w.policies, test, "192.168.1.2/32")
	if u := w.get(w.policies, test); u.Object["spec"] != nil || u.GetLabels()["x"] != "" {
		t.Errorf("it is %v", u.Object)
	}
	if err := w.policies.Delete(t.Context(), empty, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.cidrs(w.policies, empty)

	// Without groups there is no derived policy, no entry, and no look-up.
	w.patch(w.policies, "test", `{"spec":{"egress":[{"toEntities":["world"]}]}}`)
	operatortest.Eventually(t, "the derived policy is deleted", func() bool { return w.get(w.policies, test) == nil })
	w.status(w.policies, "test", "")
	at, other := w.cloud.lookups("a"), w.cloud.lookups("wide")
	operatortest.Eventually(t, "two refreshes of others", func() bool { return w.cloud.lookups("wide") >= other+2 })
	if n := w.cloud.lookups("a"); n != at {
		t.Errorf("%d look-ups after the groups are gone", n-at)
	}
	w.CheckHealthy(o)
	o.Stop()
}

// DERIV-15: the role of the original's chart, which has deletecollection in place of delete, is enough.
func TestRoleOfTheChart(t *testing.T) {
	role := stockchart.Role(t)
	w := newWorld(t)
	kubeconfig := w.As("stock", role...)
	web := w.create(w.policies, "web", `"spec":`+groupRule("a"))
	stays := w.create(w.policies, "stays", `"spec":`+groupRule("a"))
	o := w.start(kubeconfig)
	w.status(w.policies, "web", web+isOK)
	w.status(w.policies, "stays", stays+isOK)
	w.patch(w.policies, "web", `{"spec":{"egress":[{"toEntities":["world"]}]}}`)
	operatortest.Eventually(t, "the derived policy is deleted", func() bool { return w.get(w.policies, web) == nil })
	w.status(w.policies, "web", "")
	w.CheckHealthy(o)
	o.Stop()
	if w.get(w.policies, stays) == nil || w.get(w.policies, "web") == nil {
		t.Error("another policy is deleted")
	}
}

// DERIV-16: a restart on a converged cluster writes nothing; what became orphaned in between is removed.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.cloud.set("a", "10.0.0.1")
	one := w.create(w.policies, "one", `"spec":`+groupRule("a"))
	two := w.create(w.policies, "two", `"specs":[`+groupRule("a", "b")+`]`)
	o := w.start(w.Kubeconfig())
	w.status(w.policies, "one", one+isOK)
	w.status(w.policies, "two", two+isOK)
	o.Stop()
	if n := w.cloud.lookups("a"); n != 1 {
		t.Errorf("%d look-ups of one group in one refresh", n)
	}
	_, last := w.writes(0)

	o = w.start(w.Kubeconfig())
	operatortest.Eventually(t, "the groups are looked up", func() bool { return w.cloud.lookups("a") == 2 && w.cloud.lookups("b") == 2 })
	operatortest.Eventually(t, "both are counted", func() bool {
		return o.Metric("policy_derivative_derived_policies", "ok") == 2
	})
	o.Stop()
	if texts, _ := w.writes(last); len(texts) > 0 {
		t.Errorf("a restart wrote %q", texts)
	}

	w.patch(w.policies, "one", `{"spec":{"egress":[]}}`)
	w.patch(w.policies, "two", `{"status":{"derivativePolicies":{"two-groups-old":{"ok":true}}}}`, "status")
	o = w.start(w.Kubeconfig())
	operatortest.Eventually(t, "the derived policy is deleted", func() bool { return w.get(w.policies, one) == nil })
	w.status(w.policies, "one", "")
	w.status(w.policies, "two", two+isOK)
	w.CheckHealthy(o)
}

// DERIV-E3, DERIV-E5, DERIV-E6 and DERIV-E9: failures are in the status and are retried; nothing is written before the look-up
// works, and nothing is changed when it fails later.
func TestFailures(t *testing.T) {
	w := newWorld(t)
	const failure = ": <nil> Cannot retrieve data from AWS provider: throttled"
	w.cloud.fail("a", "throttled")
	other := w.Namespace + "-b"
	if _, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	elsewhere := w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(other)
	here := w.create(w.policies, "web", `"spec":`+groupRule("a"))
	there := w.create(elsewhere, "web", `"spec":`+groupRule("a"))
	both := w.create(w.policies, "both", `"spec":{"endpointSelector":{},"egress":[{"toCIDRSet":[{"cidr":"10.9.0.0/16"}],"toGroups":[{"aws":{}}]}]}`)
	o := w.start(w.Kubeconfig(), soon)
	w.status(w.policies, "web", here+failure)
	w.status(elsewhere, "web", there+failure)
	w.status(w.policies, "both", both+": <nil> Invalid CiliumNetworkPolicy spec: combining ToCIDRSet and ToGroups is not supported yet")
	if w.get(w.policies, here) != nil || w.get(w.policies, both) != nil {
		t.Error("there is a derived policy")
	}
	operatortest.Eventually(t, "health says it, too", func() bool { return strings.Contains(o.Degraded("policy.derivative"), "failing") })
	w.cloud.fail("a", "")
	w.cloud.set("a", "10.0.0.1")
	w.cidrs(w.policies, here, "10.0.0.1/32")
	w.cidrs(elsewhere, there, "10.0.0.1/32")
	w.status(w.policies, "web", here+isOK)
	w.status(elsewhere, "web", there+isOK)

	before := w.get(w.policies, here).GetResourceVersion()
	w.cloud.fail("a", "throttled")
	w.status(w.policies, "web", here+failure)
	n := w.cloud.lookups("a")
	operatortest.Eventually(t, "it is retried", func() bool { return w.cloud.lookups("a") > n })
	if after := w.get(w.policies, here).GetResourceVersion(); after != before {
		t.Error("the derived policy was written")
	}
}

// DERIV-9: without a provider, and with an unknown one, the derived policy stays as it is.
func TestUnknownProvider(t *testing.T) {
	w := newWorld(t)
	w.cloud.set("a", "10.0.0.1")
	web := w.create(w.policies, "web", `"spec":`+groupRule("a"))
	o := w.start(w.Kubeconfig())
	w.status(w.policies, "web", web+isOK)
	o.Stop()
	o = operatortest.Start(t, Cell, w.Kubeconfig(), "--cilium-release=1.19")
	w.status(w.policies, "web", web+": <nil> Provider AWS is not registered")
	w.cidrs(w.policies, web, "10.0.0.1/32")
	operatortest.Eventually(t, "health says it, too", func() bool {
		return strings.Contains(o.Degraded("policy.derivative"), "Provider AWS is not registered")
	})
	o.Stop()
	texts, _ := w.writes(0)
	if n := len(texts); n != 3 { // the derived policy, and two states
		t.Errorf("it wrote %q", texts)
	}
}

// DERIV-13: policies without groups cost no request, however many there are.
func TestOtherPolicies(t *testing.T) {
	w := newWorld(t)
	for i := range 50 {
		w.create(w.policies, fmt.Sprint("plain-", i), `"spec":{"endpointSelector":{},"egress":[{"toEntities":["all"]}]}`)
	}
	w.cloud.set("a", "10.0.0.1")
	web := w.create(w.policies, "web", `"spec":`+groupRule("a"))
	o := w.start(w.Kubeconfig())
	w.status(w.policies, "web", web+isOK)
	o.Stop()
	for _, r := range w.Proxy.Requests(t, 0) {
		if strings.HasPrefix(r.Name, "plain-") {
			t.Errorf("%s of %s", r.Verb, r.Name)
		}
	}
	if texts, _ := w.writes(0); !slices.Equal(texts, []string{"create ciliumnetworkpolicies", "update ciliumnetworkpolicies/status"}) {
		t.Errorf("it wrote %q", texts)
	}
}

// K8S-22; number 7.2 of the contract's tenants.md: five policies of one namespace whose groups take long to look up leave a worker to the
// policy of another.
func TestPoliciesOfOneNamespaceDoNotHoldUpThoseOfAnother(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.create(w.policies, fmt.Sprint("slow-", i), `"spec":`+groupRule(fmt.Sprint("slow-", i)))
	}
	w.cloud.set("quick", "10.1.1.1")
	w.start(w.Kubeconfig())
	operatortest.Eventually(t, "the first of them are looked up", func() bool { return w.cloud.begun() >= 3 })
	other := w.Namespace + "-aa"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	if _, err := w.Core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	policies := w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(other)
	derived := w.create(policies, "quick", `"spec":`+groupRule("quick"))
	w.cidrs(policies, derived, "10.1.1.1/32")
	close(w.cloud.slow)
}

// DERIV-28, K3 of the contract's tenants.md: a policy with groups that has tens of thousands of entries is not read: its status has the error, and its derived
// policy stays. Without groups that goes.
func TestPoliciesWithManyEntries(t *testing.T) {
	w := newWorld(t)
	w.cloud.set("a", "192.168.1.1")
	test := w.create(w.policies, "test", `"spec":`+groupRule("a"))
	o := w.start(w.Kubeconfig(), soon)
	w.cidrs(w.policies, test, "192.168.1.1/32")
	many := `{"toEndpoints":[` + strings.Repeat("{},", mostEntries) + `{}]}`
	w.patch(w.policies, "test", `{"spec":{"egress":[{"toGroups":[{"aws":{"region":"a"}}]},`+many+`]}}`)
	operatortest.Eventually(t, "its status has the error", func() bool {
		return strings.Contains(w.entries(w.policies, "test"), "have more than 30000 entries together")
	})
	w.cidrs(w.policies, test, "192.168.1.1/32")
	w.patch(w.policies, "test", `{"spec":{"egress":[`+many+`]}}`)
	operatortest.Eventually(t, "without groups the derived policy goes", func() bool { return w.get(w.policies, test) == nil })
	w.CheckHealthy(o)
}
