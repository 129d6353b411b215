// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/cells/policy/derivative"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// AWS-26: a policy for a security group has a derived policy with the addresses of EC2, which follows what joins and leaves the
// group. A group without members selects nothing.
func TestServerGroupsOfPolicies(t *testing.T) {
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy")
	env.Clear(v2.CiliumNodeResource, v2.CiliumNetworkPolicyResource, v2.CiliumClusterwideNetworkPolicyResource)
	env.CreateNamespace()
	policies := env.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(env.Namespace)
	c := fleet(t)
	serve(t, c)
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"web"},"spec":{
		"endpointSelector":{"matchLabels":{"app":"web"}},"egress":[{"toGroups":[{"aws":{"securityGroupsIds":["sg-db"]}}]}]}}`)); err != nil {
		t.Fatal(err)
	}
	u, err := policies.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	derived := fmt.Sprintf("web-groups-%s", u.GetUID())
	o := operatortest.Setup{Process: []cell.Cell{cloudipam.Cell}}.Start(t, cell.Set(Cell, derivative.Cell), env.Kubeconfig(), "--ipam=eni",
		"--limit-ipam-api-qps=1000", "--limit-ipam-api-burst=1000", "--derived-policies-refresh-interval=1s", "--cilium-release=1.19")

	wants := func(addresses ...string) {
		t.Helper()
		slices.SortFunc(addresses, func(a, b string) int { return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b)) })
		list := []string{}
		for _, a := range addresses {
			list = append(list, fmt.Sprintf(`{"cidr":"%s/32"}`, a))
		}
		entry := fmt.Sprintf(`[{"toCIDRSet":[%s]}]`, strings.Join(list, ","))
		operatortest.Eventually(t, "the derived policy has "+entry, func() bool {
			p, err := policies.Get(t.Context(), derived, metav1.GetOptions{})
			if err != nil {
				return false
			}
			specs, _, _ := unstructured.NestedSlice(p.Object, "specs")
			text, _ := json.Marshal(specs[0].(map[string]any)["egress"])
			return string(text) == entry
		})
	}
	db, web := addressOf(t, c, "i-db"), addressOf(t, c, "i-web")
	wants(db)
	for _, e := range c.Interfaces() {
		if e.Instance == "i-web" {
			c.SetGroups(e.ID, "sg-web", "sg-db")
		}
	}
	wants(db, web, "3.3.3.3")
	c.Terminate("i-db")
	c.Terminate("i-web")
	wants()
	env.CheckHealthy(o)
	if n := c.Changes(); n != 0 {
		t.Errorf("%d changes of EC2", n)
	}
}
