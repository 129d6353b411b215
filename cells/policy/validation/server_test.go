// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/runtime/cell"
)

// world is all network policies of the cluster.
type world struct {
	*operatortest.Env
	policies, clusterwide dynamic.ResourceInterface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Env: operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy")}
	w.Clear(v2.CiliumNetworkPolicyResource, v2.CiliumClusterwideNetworkPolicyResource)
	w.CreateNamespace()
	w.policies = w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(w.Namespace)
	w.clusterwide = w.Dynamic.Resource(v2.CiliumClusterwideNetworkPolicyResource)
	return w
}

// duty is the module, and the one that has an option that it reads.
var duty = cell.Set(spire.Cell, Cell)

// start runs an operator in a cluster of 1.17.
func (w *world) start(args ...string) *operatortest.Operator {
	w.T.Helper()
	return w.startIn("1.17", args...)
}

func (w *world) startIn(release string, args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, duty, w.Kubeconfig(), append(args, "--cilium-release="+release)...)
}

func (w *world) create(name, rules string) {
	w.T.Helper()
	w.createIn(w.policies, "CiliumNetworkPolicy", name, rules)
}

func (w *world) createIn(in dynamic.ResourceInterface, kind, name, rules string) {
	w.T.Helper()
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"cilium.io/v2","kind":%q,"metadata":{"name":%q},%s}`, kind, name, rules)
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		w.T.Fatal(text, err)
	}
	if _, err := in.Create(w.T.Context(), u, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) patch(name, patch string, subresources ...string) {
	w.T.Helper()
	if _, err := w.policies.Patch(w.T.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		w.T.Fatal(err)
	}
}

// condition is that of a policy, nil if there is none.
func (w *world) condition(in dynamic.ResourceInterface, name string) map[string]any {
	w.T.Helper()
	u, err := in.Get(w.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == "Valid" {
			return c
		}
	}
	return nil
}

// want waits for the condition of a policy, whose message begins with a text.
func (w *world) want(name, status, message string) map[string]any {
	w.T.Helper()
	return w.wantIn(w.policies, name, status, message)
}

func (w *world) wantIn(in dynamic.ResourceInterface, name, status, message string) (c map[string]any) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprint(name, " is ", status, " ", message), func() bool {
		c = w.condition(in, name)
		text, _ := c["message"].(string)
		return c["status"] == status && strings.HasPrefix(text, message)
	})
	return c
}

// writes are the mutating requests after the one with a number, and the number of the last.
func (w *world) writes(after int64) (texts []string, last int64) {
	w.T.Helper()
	last = after
	for _, r := range w.Proxy.Answered(w.T, after) {
		last = r.Seq
		if strings.HasPrefix(r.Resource, "cilium") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			texts = append(texts, fmt.Sprintf("%s %s/%s %s: %d", r.Verb, r.Resource, r.Subresource, r.Name, r.Status))
		}
	}
	return texts, last
}

// ruleWithPort is a rule for a port.
func ruleWithPort(port string) string {
	return fmt.Sprintf(`{"endpointSelector":{},"egress":[{"toPorts":[{"ports":[{"port":%q}]}]}]}`, port)
}

const goodRule = `{"endpointSelector":{},"egress":[{"toEntities":["all"]}]}`

// VALID-E1, VALID-E2 and VALID-E5; VALID-14: a restart writes nothing.
func TestConditions(t *testing.T) {
	w := newWorld(t)
	w.create("port", `"spec":`+ruleWithPort("99999"))
	w.create("several", `"specs":[`+ruleWithPort("99999")+`,`+goodRule+`]`)
	w.create("group", `"spec":{"endpointSelector":{},"egress":[{"toCIDRSet":[{"cidr":"10.9.0.0/16"}],"toGroups":[{"aws":{"region":"x"}}]}]}`)
	w.create("icmp", `"spec":{"endpointSelector":{},"egress":[{"icmps":[{"fields":[{"type":8}]}]}]}`)
	w.createIn(w.clusterwide, "CiliumClusterwideNetworkPolicy", "wide", `"spec":{"nodeSelector":{},"ingress":[{"fromNodes":[{}]}]}`)
	w.create("good", `"spec":`+goodRule)
	o := w.start()
	first := w.want("port", "False", `Unable to parse port:`)
	w.want("several", "False", `Unable to parse port:`)
	w.want("group", "False", "Combining ToCIDRSet and ToGroups is not supported yet")
	w.want("icmp", "True", succeeded)
	w.want("good", "True", succeeded)
	w.wantIn(w.clusterwide, "wide", "False", `FromNodes/ToNodes rules can only be applied when the "enable-node-selector-labels" flag is set`)
	operatortest.Eventually(t, "four are invalid", func() bool { return o.Metric("policy_validation_policies_invalid") == 4 })

	// Another message leaves the time; another status does not.
	w.patch("port", `{"spec":`+ruleWithPort("88888")+`}`)
	second := w.want("port", "False", `Unable to parse port: strconv.ParseUint: parsing "88888"`)
	if first["lastTransitionTime"] != second["lastTransitionTime"] {
		t.Errorf("the time is %v, and then %v", first["lastTransitionTime"], second["lastTransitionTime"])
	}
	w.nextSecond(first)
	w.patch("port", `{"spec":`+goodRule+`}`)
	if third := w.want("port", "True", succeeded); third["lastTransitionTime"] == second["lastTransitionTime"] {
		t.Error("the time stays although the status changed")
	}
	operatortest.Eventually(t, "three are invalid", func() bool { return o.Metric("policy_validation_policies_invalid") == 3 })
	w.CheckHealthy(o)
	o.Stop()
	writes, last := w.writes(0)
	if len(writes) != 8 {
		t.Errorf("it wrote %q, want 8 patches", writes)
	}
	for _, text := range writes {
		if !strings.HasPrefix(text, "patch cilium") || !strings.Contains(text, "/status") {
			t.Errorf("it wrote %q", text)
		}
	}

	o = w.start()
	w.create("last", `"spec":`+goodRule)
	w.want("last", "True", succeeded)
	w.CheckHealthy(o)
	o.Stop()
	if writes, _ := w.writes(last); len(writes) != 1 {
		t.Errorf("a restart wrote %q", writes)
	}
}

// VALID-17: the role of the original's chart is enough.
func TestRoleOfTheChart(t *testing.T) {
	role := stockchart.Role(t)
	w := newWorld(t)
	kubeconfig := w.As("stock", role...)
	w.create("bad", `"spec":`+ruleWithPort("99999"))
	w.createIn(w.clusterwide, "CiliumClusterwideNetworkPolicy", "good", `"spec":`+goodRule)
	o := operatortest.Start(t, duty, kubeconfig, "--cilium-release=1.17")
	w.want("bad", "False", "Unable to parse port:")
	w.wantIn(w.clusterwide, "good", "True", succeeded)
	w.CheckHealthy(o)
}

// VALID-15: an Event tells of a policy that is not valid. VALID-E6: one with an expression that would take all memory is such a policy.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.create("heavy", `"spec":{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"80","protocol":"TCP"}],"rules":{"http":[{"path":"`+
		strings.Repeat(".{1000}", 2800)+`"}]}}]}]}`)
	w.create("bad", `"spec":`+ruleWithPort("99999"))
	w.start()
	w.want("heavy", "False", `regular expression ".{1000}.{1000}`)
	operatortest.Eventually(t, "there is an Event", func() bool {
		list, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == "InvalidPolicy" && e.InvolvedObject.Kind == "CiliumNetworkPolicy" && e.InvolvedObject.Name == "bad" && strings.HasPrefix(e.Message, "Unable to parse port")
		})
	})
}

// nextSecond waits until a condition that is set gets another time: times have seconds.
func (w *world) nextSecond(c map[string]any) {
	w.T.Helper()
	at, err := time.Parse(time.RFC3339, c["lastTransitionTime"].(string))
	if err != nil {
		w.T.Fatal(err)
	}
	operatortest.Eventually(w.T, "the next second", func() bool { return time.Since(at) > 1100*time.Millisecond })
}

// VALID-11: what others write to the status at the same time stays, and the condition that another writer changes is restored.
func TestOtherWriters(t *testing.T) {
	w := newWorld(t)
	w.create("web", `"spec":`+goodRule)
	w.patch("web", `{"status":{"conditions":[{"type":"Other","status":"True","message":"m","reason":"R"}],"derivativePolicies":{"x":{"ok":true}}}}`, "status")
	o := w.start()
	w.want("web", "True", succeeded)
	w.patch("web", `{"status":{"conditions":[{"type":"Other","status":"False"},{"type":"Valid","status":"False","message":"x"}],"derivativePolicies":{"x":{"ok":true}}}}`, "status")
	w.want("web", "True", succeeded)
	u, err := w.policies.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	conditions := status["conditions"].([]any)
	for _, c := range conditions {
		delete(c.(map[string]any), "lastTransitionTime")
	}
	text, _ := json.Marshal(status)
	const want = `{"conditions":[{"status":"False","type":"Other"},{"message":"Policy validation succeeded","status":"True","type":"Valid"}],"derivativePolicies":{"x":{"ok":true}}}`
	if string(text) != want {
		t.Errorf("the status is %s, want %s", text, want)
	}
	w.CheckHealthy(o)
}

// VALID-E4: nothing is written where validation is off.
func TestOff(t *testing.T) {
	w := newWorld(t)
	w.create("bad", `"spec":`+ruleWithPort("99999"))
	w.patch("bad", `{"status":{"conditions":[{"type":"Valid","status":"True","message":"by another"}]}}`, "status")
	o := w.start("--validate-network-policy=false")
	o.Stop()
	if c := w.condition(w.policies, "bad"); c["message"] != "by another" {
		t.Errorf("the condition is %v", c)
	}
	if writes, _ := w.writes(0); len(writes) > 0 {
		t.Errorf("it wrote %q", writes)
	}
}

// VALID-E3, VALID-9: policies that only a lax definition lets in, such as those that are older than the schema.
func TestPoliciesThatTheSchemaForbids(t *testing.T) {
	w := newWorld(t)
	w.lax()
	bad := map[string]string{
		"name":       `"spec":{"endpointSelector":{},"egress":[{"toFQDNs":[{"matchName":"a b"}]}]}`,
		"type":       `"spec":"x"`,
		"element":    `"specs":[7,` + goodRule + `]`,
		"list":       `"specs":{}`,
		"depth":      `"spec":{"endpointSelector":` + strings.Repeat(`{"matchLabels":`, 500) + `7` + strings.Repeat("}", 500) + `}`,
		"conditions": `"spec":` + goodRule + `,"status":{"conditions":"x"}`,
	}
	for name, rules := range bad {
		operatortest.Eventually(t, name+" is taken", func() bool { // when the definition is lax
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":%q},%s}`, name, rules)); err != nil {
				t.Fatal(err)
			}
			_, err := w.policies.Create(t.Context(), u, metav1.CreateOptions{})
			return err == nil
		})
	}
	w.patch("conditions", `{"status":{"conditions":"x"}}`, "status")
	o := w.start()
	w.want("name", "False", `Invalid characters in MatchName: "a b".`)
	for _, name := range []string{"type", "element", "depth"} {
		w.want(name, "False", "cannot decode the rule: ")
	}
	w.want("list", "False", "cannot decode the list of rules: ")
	operatortest.Eventually(t, "the policy whose conditions cannot be compared is named", func() bool {
		return strings.Contains(o.Degraded(""), "/conditions") && strings.Contains(o.Degraded(""), "cannot decode status.conditions")
	})
	w.patch("conditions", `{"status":{"conditions":null}}`, "status")
	w.want("conditions", "True", succeeded)
	operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("") == "" })
}

// lax makes the definition one that lets fields have any type, until the test ends.
func (w *world) lax() {
	w.T.Helper()
	definitions := w.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	edit := func(ctx context.Context, change func(version map[string]any)) {
		w.T.Helper()
		crd, err := definitions.Get(ctx, "ciliumnetworkpolicies.cilium.io", metav1.GetOptions{})
		if err != nil {
			w.T.Fatal(err)
		}
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		change(versions[0].(map[string]any))
		_ = unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
		if _, err := definitions.Update(ctx, crd, metav1.UpdateOptions{}); err != nil {
			w.T.Fatal(err)
		}
	}
	var strict any
	edit(w.T.Context(), func(version map[string]any) {
		strict = version["schema"]
		version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	})
	w.T.(*testing.T).Cleanup(func() {
		edit(context.WithoutCancel(w.T.Context()), func(version map[string]any) { version["schema"] = strict })
	})
}
