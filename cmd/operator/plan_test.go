// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// plan runs a dry run as a user, and returns what it printed and its exit code.
func (w *world) plan(kubeconfig string, args ...string) (stdout []byte, code int) {
	w.t.Helper()
	stdout, log, code, err := w.planWithLog(kubeconfig, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if strings.Contains(log, "DATA RACE") || code == 1 || code < 0 {
		w.t.Fatalf("exit code %d\n%s\n%s", code, stdout, log)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("log of the plan:\n%s", withoutOptions(log))
		}
	})
	return stdout, code
}

// planWithLog is plan with the log. It may be called by any goroutine.
func (w *world) planWithLog(kubeconfig string, args ...string) (stdout []byte, log string, code int, err error) {
	cmd := exec.CommandContext(w.t.Context(), os.Args[0], append([]string{
		"--plan", "--k8s-kubeconfig-path=" + kubeconfig, "--k8s-namespace=" + w.namespace,
		"--operator-sock-path=", "--operator-api-serve-addr=127.0.0.1:0", "--enable-gops=false",
		"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8",
		"--operator-k8s-client-qps=1000", "--operator-k8s-client-burst=2000",
	}, args...)...)
	cmd.Env = operatorEnv(k8s.StrictCause + "=1")
	var out, logged bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logged
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = nil
	}
	if err == nil {
		code = cmd.ProcessState.ExitCode()
	}
	return out.Bytes(), logged.String(), code, err
}

func withoutOptions(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `msg="  --`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// planned is the part of a plan's JSON that tests read.
type planned struct {
	Stable  bool
	Writes  []plannedWrite
	Waiting []string
}

type plannedWrite struct {
	Rule, Verb, Resource, Namespace, Name, Subresource string
	Every, DueIn                                       string
	Request                                            json.RawMessage
}

func parsePlan(t *testing.T, text []byte) planned {
	t.Helper()
	var p planned
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return p
}

// comparable is a write without what differs from run to run: generated names,
// numbers and times.
type comparable struct{ verb, resource, namespace, name, subresource, body string }

// recurring are writes that an operator makes again and again, whatever is there.
func recurring(resource string) bool { return resource == "leases.coordination.k8s.io" }

// identitiesMade are the label sets of the identities that are made, by number.
type identitiesMade map[int64]string

func madeBy(t *testing.T, writes []plannedWrite) identitiesMade {
	t.Helper()
	made := identitiesMade{}
	for _, w := range writes {
		if w.Verb != "create" || w.Resource != "ciliumidentities.cilium.io" {
			continue
		}
		var identity unstructured.Unstructured
		if err := json.Unmarshal(w.Request, &identity.Object); err != nil {
			t.Fatal(err)
		}
		number, err := strconv.ParseInt(identity.GetName(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		made[number] = labelSet(&identity)
	}
	return made
}

// undrawn is a plan without the writes whose names or numbers are drawn, or whose steps depend on which of several clusters is
// read first: the same state gives the same bytes of it.
func undrawn(t *testing.T, text []byte) string {
	t.Helper()
	var p map[string]any
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	p["writes"] = slices.DeleteFunc(p["writes"].([]any), func(w any) bool {
		resource := w.(map[string]any)["resource"].(string)
		return resource == "ciliumidentities.cilium.io" || resource == "ciliumendpointslices.cilium.io" || slices.Contains(ofMesh, resource)
	})
	for _, w := range p["writes"].([]any) {
		// What is written to etcd is set off by objects, by etcd or by remote clusters, whichever is read first.
		if w := w.(map[string]any); strings.HasPrefix(w["resource"].(string), "cilium/") {
			delete(w, "triggers")
		}
	}
	rest, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(rest)
}

// lasting are the writes that an operator does not make again and again. A slice that is created and then updated is
// created as it is in the end: in how many steps depends on which identity is there when caches have synced.
func lasting(writes []plannedWrite) (last []plannedWrite) {
	created := map[string]int{} // by name, the place in last
	for _, w := range writes {
		at, isNew := created[w.Name]
		switch {
		case w.Every != "" || recurring(w.Resource):
		case w.Resource != "ciliumendpointslices.cilium.io" || w.Verb != "update" || !isNew:
			if w.Verb == "create" && w.Resource == "ciliumendpointslices.cilium.io" {
				created[w.Name] = len(last)
			}
			last = append(last, w)
		default:
			last[at].Request = w.Request
		}
	}
	return last
}

// countWrites counts writes by what they have in common. Slices tell the identities
// that are made by number; they are known by their labels.
func countWrites(t *testing.T, writes []plannedWrite, made identitiesMade) map[comparable]int {
	t.Helper()
	count := map[comparable]int{}
	for _, w := range lasting(writes) {
		count[comparable{w.Verb, w.Resource, w.Namespace, placeholders(w.Name), w.Subresource, body(t, w.Request, made)}]++
	}
	return count
}

// writesOf are the stored writes of a user, as the audit log has them.
func writesOf(all requests) (writes []plannedWrite) {
	for _, e := range all.which(func(e clustertest.AuditEvent) bool { return e.Stored() }) {
		ref := e.ObjectRef
		resource := ref.Resource
		if ref.APIGroup != "" {
			resource += "." + ref.APIGroup
		}
		writes = append(writes, plannedWrite{
			Verb: e.Verb, Resource: resource, Namespace: ref.Namespace, Name: ref.Name, Subresource: ref.Subresource, Request: e.RequestObject,
		})
	}
	return writes
}

var (
	cidrPattern   = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+(/\d+)?\b`)
	timePattern   = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	numberPattern = regexp.MustCompile(`^\d+$`)
	// slicePattern are names of slices of CiliumEndpoints.
	slicePattern = regexp.MustCompile(`^ces-[a-z0-9]+-[a-z0-9]+$`)
)

// placeholders replaces what is drawn in a name.
func placeholders(name string) string {
	switch {
	case numberPattern.MatchString(name):
		return "<number>"
	case slicePattern.MatchString(name):
		return "ces-<generated>"
	}
	return name
}

// body is the body of a request without what a server draws.
func body(t *testing.T, raw json.RawMessage, made identitiesMade) string {
	t.Helper()
	if len(raw) == 0 {
		return ""
	}
	var content any
	if err := json.Unmarshal(raw, &content); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	if object, ok := content.(map[string]any); ok {
		if meta, ok := object["metadata"].(map[string]any); ok {
			for _, drawn := range []string{"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields"} {
				delete(meta, drawn)
			}
			if name, ok := meta["name"].(string); ok {
				meta["name"] = placeholders(name)
			}
		}
		withoutDefaults(object)
		withoutNumbers(object, made)
		delete(object, "apiVersion") // of DeleteOptions the server fills in its own
		delete(object, "kind")
		if p, ok := object["preconditions"].(map[string]any); ok {
			delete(p, "resourceVersion")
		}
	}
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return timePattern.ReplaceAllString(cidrPattern.ReplaceAllString(string(text), "<address>"), "<time>")
}

// withoutDefaults takes out of a definition what the server fills in before it
// logs the request.
func withoutDefaults(object map[string]any) {
	if object["kind"] != "CustomResourceDefinition" {
		return
	}
	delete(object, "status") // which is none of a request's business
	unstructured.RemoveNestedField(object, "spec", "conversion")
	unstructured.RemoveNestedField(object, "spec", "names", "listKind")
}

// withoutNumbers replaces the numbers of identities in a slice that are made.
func withoutNumbers(object map[string]any, made identitiesMade) {
	if object["kind"] != "CiliumEndpointSlice" {
		return
	}
	entries, _ := object["endpoints"].([]any)
	for _, e := range entries {
		entry := e.(map[string]any)
		number, _ := entry["id"].(float64)
		if set := made[int64(number)]; set != "" {
			entry["id"] = set
		}
	}
}

// compareWrites is how many of the writes are on one side only, and which.
func compareWrites(plan, real map[comparable]int) (total, missed int, differences []string) {
	all := map[comparable]int{}
	maps.Copy(all, plan)
	maps.Copy(all, real)
	for w := range all {
		total += max(plan[w], real[w])
		if d := plan[w] - real[w]; d != 0 {
			missed += max(d, -d)
			differences = append(differences, fmt.Sprintf("%d times planned, %d times made: %.600s", plan[w], real[w], fmt.Sprint(w)))
		}
	}
	slices.Sort(differences)
	return total, missed, differences
}

// The comparison of a plan with a run finds what is on one side only.
func TestPlanComparisonFails(t *testing.T) {
	a := comparable{verb: "delete", resource: "ciliumnodes.cilium.io", name: "a"}
	b := comparable{verb: "delete", resource: "ciliumnodes.cilium.io", name: "b"}
	for _, test := range []struct {
		plan, real map[comparable]int
		missed     int
	}{
		{map[comparable]int{a: 1}, map[comparable]int{a: 1}, 0},
		{map[comparable]int{a: 2}, map[comparable]int{a: 1}, 1},
		{map[comparable]int{a: 1}, map[comparable]int{b: 1}, 2},
		{nil, map[comparable]int{b: 1}, 1},
	} {
		if _, missed, _ := compareWrites(test.plan, test.real); missed != test.missed {
			t.Errorf("%v and %v: %d, not %d", test.plan, test.real, missed, test.missed)
		}
	}
	of := func(verb, name, request string) plannedWrite {
		return plannedWrite{Verb: verb, Resource: "ciliumendpointslices.cilium.io", Name: name, Request: json.RawMessage(request)}
	}
	steps := []plannedWrite{of("create", "ces-a-b", "[1]"), of("update", "ces-c-d", "[2]"), of("update", "ces-a-b", "[1,2]"), of("delete", "ces-a-b", "")}
	if got, want := lasting(steps), []plannedWrite{of("create", "ces-a-b", "[1,2]"), steps[1], steps[3]}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v are %v", steps, got)
	}
	text := func(of string, made identitiesMade) string { return body(t, json.RawMessage(of), made) }
	before := text(`{"metadata":{"name":"7","resourceVersion":"1"},"spec":{"ipam":{"podCIDRs":["10.0.0.0/24"]}}}`, nil)
	after := text(`{"metadata":{"name":"8","resourceVersion":"2"},"spec":{"ipam":{"podCIDRs":["10.0.1.0/24"]}}}`, nil)
	if before != after {
		t.Errorf("%s\n%s", before, after)
	}
	if other := text(`{"metadata":{"name":"8"},"spec":{"ipam":{"podCIDRs":[]}}}`, nil); other == after {
		t.Error("another body is the same")
	}
	slice := func(id int) string { return fmt.Sprintf(`{"kind":"CiliumEndpointSlice","endpoints":[{"id":%d}]}`, id) }
	if a, b := text(slice(7), identitiesMade{7: "app=web;"}), text(slice(8), identitiesMade{8: "app=web;"}); a != b {
		t.Errorf("%s\n%s", a, b)
	}
	if text(slice(7), identitiesMade{7: "app=web;"}) == text(slice(8), identitiesMade{8: "app=db;"}) || text(slice(7), nil) == text(slice(8), nil) {
		t.Error("another identity is the same")
	}
}

// leftOvers are what duties act upon, besides what a load has. What a further
// duty acts upon is added here, or to the load; nothing else has to be changed.
func (w *world) leftOvers(n int) {
	w.t.Helper()
	for i := range n {
		w.addNode(fmt.Sprintf("left-over-%d", i), fmt.Sprintf("10.250.%d.0/24", i))
		endpoint := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint",
			"metadata": map[string]any{"name": fmt.Sprintf("left-over-%d", i), "namespace": w.namespace},
		}}
		_, err := w.dynamic.Resource(v2.SchemeGroupVersion.WithResource("ciliumendpoints")).Namespace(w.namespace).
			Create(w.t.Context(), endpoint, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// ages waits until all endpoints that there are now are of an age.
func (w *world) ages(least time.Duration) {
	w.t.Helper()
	list, err := w.dynamic.Resource(v2.SchemeGroupVersion.WithResource("ciliumendpoints")).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var youngest time.Time
	for _, u := range list.Items {
		if made := u.GetCreationTimestamp().Time; made.After(youngest) {
			youngest = made
		}
	}
	eventually(w.t, "endpoints are old enough", func() bool { return time.Since(youngest) >= least })
}

// allowReading lets a user read everything, and no more.
func (w *world) allowReading(user string) {
	w.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"*"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := w.core.RbacV1().ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.core.RbacV1().ClusterRoleBindings().Create(w.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	clustertest.AwaitAllowed(w.t, w.core, user, []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}}})
}

// everyDuty turns on what is off, and has garbage go soon. Endpoints younger than the
// interval are none.
var everyDuty = []string{
	"--cilium-endpoint-gc-interval=2s", "--nodes-gc-interval=2s",
	"--identity-management-mode=operator", "--identity-gc-interval=1s", "--identity-heartbeat-timeout=2s",
	"--enable-cilium-endpoint-slice", "--ces-slice-mode=identity",
}

// What a plan says is what the next run does, and a plan does nothing.
func TestPlanIsWhatARunDoes(t *testing.T) {
	t.Run("slices of endpoints", func(t *testing.T) {
		// Endpoints of the load tell numbers of their own, whatever is drawn.
		none := func(*testing.T, []plannedWrite) identitiesMade { return nil }
		planIsARun(t, clustertest.Load{Nodes: 100, Pods: 1000}, everyDuty, none)
	})
	t.Run("slices of pods", func(t *testing.T) {
		planIsARun(t, clustertest.Load{Nodes: 20, Pods: 200}, append(slices.Clone(everyDuty), "--ces-controller-mode=slim"), madeBy)
	})
}

// planIsARun compares what is planned and made upon a load. made are the identities
// that slices tell of a list of writes and that were drawn.
func planIsARun(t *testing.T, load clustertest.Load, args []string, made func(*testing.T, []plannedWrite) identitiesMade) {
	count := func(writes []plannedWrite) map[comparable]int { return countWrites(t, writes, made(t, writes)) }
	w := newWorldIn(t, clustertest.Start(t, clustertest.AuditLevel("Request"), clustertest.Loaded(load)))
	w.leftOvers(20)
	w.ages(3 * time.Second)
	user := func(name string) string { return w.UserKubeconfig(t, name, "system:masters") }

	audit := w.Audit(t)
	first, code := w.plan(user("planner"), append(args, "-o", "json")...)
	second, _ := w.plan(user("planner"), append(args, "-o", "json")...)
	seen := w.requests(audit, "planner")
	if len(seen) == 0 {
		t.Fatal("the audit log knows nothing of the plan")
	}
	if wrote := seen.which(func(e clustertest.AuditEvent) bool { return e.Mutates() }); len(wrote) > 0 {
		t.Errorf("a plan made %d mutating requests:\n%s", len(wrote), wrote)
	}
	if code != 2 {
		t.Errorf("exit code %d of a plan with something to do", code)
	}
	if a, b := undrawn(t, first), undrawn(t, second); a != b {
		t.Errorf("two plans of one state differ:\n%s", firstDifference(a, b))
	}
	plan := parsePlan(t, first)
	planned := count(plan.Writes)
	if _, missed, differences := compareWrites(planned, count(parsePlan(t, second).Writes)); missed > 0 {
		t.Errorf("two plans of one state differ in %d writes:\n%s", missed, strings.Join(differences[:min(20, len(differences))], "\n"))
	}
	if !plan.Stable || len(plan.Writes) < load.Nodes+2*20 {
		t.Fatalf("a plan of %d writes, stable: %t", len(plan.Writes), plan.Stable)
	}

	audit = w.Audit(t)
	o, _ := w.run("runner", nil, args...)
	o.leads()
	seen = nil
	o.until("as many writes are made as were planned", func() bool {
		seen = append(seen, w.requests(audit, "runner")...)
		return len(lasting(writesOf(seen))) >= len(lasting(plan.Writes))
	})
	// A plan needs no lease: it is made while another operator leads.
	eventually(t, "there is nothing left to do", func() bool {
		_, code := w.plan(user("checker"), args...)
		return code == 0
	})
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	seen = append(seen, w.requests(audit, "runner")...)
	total, missed, differences := compareWrites(planned, count(writesOf(seen)))
	t.Logf("%d writes, %d of them on one side only", total, missed)
	if missed*1000 > total {
		t.Errorf("plan and run differ in %d of %d writes:\n%s", missed, total, strings.Join(differences[:min(20, len(differences))], "\n"))
	}
}

// A plan is made with the rights to read alone, and says what it has no right to.
func TestPlanReadsOnly(t *testing.T) {
	w := newWorldIn(t, clustertest.Start(t))
	audit := w.Audit(t)
	kubeconfig := w.UserKubeconfig(t, "reader")
	w.allowReading("reader")
	text, code := w.plan(kubeconfig)
	if code != 2 || !strings.Contains(string(text), "create customresourcedefinitions.apiextensions.k8s.io ciliumnodes.cilium.io") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	if !strings.Contains(string(text), "the role lacks") {
		t.Errorf("nothing is said of rights that the role lacks:\n%s", text)
	}
	if wrote := w.requests(audit, "reader").which(func(e clustertest.AuditEvent) bool { return e.Mutates() }); len(wrote) > 0 {
		t.Errorf("a plan made mutating requests:\n%s", wrote)
	}
	if n := len(w.requests(w.AuditFromStart(), "reader")); n == 0 {
		t.Error("the audit log knows nothing of the plan")
	}
}

// NIPAM-9: what is watched on demand is part of a plan.
func TestPlanOfKindsOnDemand(t *testing.T) {
	w := newWorld(t)
	ready, node := true, w.namespace
	made, err := w.core.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"of": node}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		err := errors.Join(w.core.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}), w.core.CoreV1().Services(w.namespace).Delete(ctx, "web", metav1.DeleteOptions{}),
			w.core.DiscoveryV1().EndpointSlices(w.namespace).Delete(ctx, "web", metav1.DeleteOptions{}))
		if err != nil {
			t.Error(err)
		}
	})
	made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	if _, err := w.core.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	if _, err := w.core.DiscoveryV1().EndpointSlices(w.namespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"io.cilium.nodeipam/match-node-labels": "of=" + node}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("io.cilium/node"), Ports: []corev1.ServicePort{{Port: 80}},
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		},
	}
	if _, err := w.core.CoreV1().Services(w.namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	text, code := w.plan(w.UserKubeconfig(t, "planner", "system:masters"), "--enable-node-ipam", "-o", "json")
	plan := parsePlan(t, text)
	if code != 2 || !plan.Stable || !slices.ContainsFunc(plan.Writes, func(p plannedWrite) bool {
		return p.Resource == "services" && p.Namespace == w.namespace && p.Name == "web" && p.Subresource == "status"
	}) {
		t.Errorf("exit code %d, stable: %t, no address in\n%s", code, plan.Stable, text)
	}
}

// A plan that cannot be finished says so, and what it waits for.
func TestPlanNotStable(t *testing.T) {
	w := newWorldIn(t, clustertest.Start(t))
	proxy := w.NewProxy(t)
	proxy.Answer(t, http.StatusInternalServerError, clustertest.Match{Resources: []string{"ciliumnodes", "customresourcedefinitions"}})
	text, code := w.plan(proxy.UserKubeconfig(t, "blocked", "system:masters"), "--plan-timeout=5s")
	if code != 3 || !strings.Contains(string(text), "NOT STABLE within 5s") || !strings.Contains(string(text), "ciliumnodes.cilium.io: not synced") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}

// What a plan says of etcd, and of what follows from a remote cluster, is what the next run does, and nothing is written.
func TestPlanInEtcd(t *testing.T) {
	w, e := newWorld(t), kvstoretest.Start(t, 1)
	m := newMesh(w, e, w.namespace)
	planMesh(m, e)
	options := func(args ...string) []string { return withEtcd(e, append(args, m.args()...)...) }
	lock := kvstore.Key(kvstore.IdentityLocksPrefix, "k8s:stuck;", "694d8c3")
	// A heartbeat of the second in which the plan begins would not change.
	for key, value := range map[string]string{lock: "", heartbeatKey: "2020-01-01T00:00:00Z"} {
		if _, err := e.Client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := w.UserKubeconfig(t, "etcd-planner", "system:masters")
	before, leases := e.Revision(), countLeases(t, e)
	text, code := w.plan(kubeconfig, options("-o", "json")...)
	again, _ := w.plan(kubeconfig, options("-o", "json")...)
	if now := e.Revision(); now != before || countLeases(t, e) != leases {
		t.Errorf("a plan changed etcd: revision %d, was %d; %d leases, were %d", now, before, countLeases(t, e), leases)
	}
	if a, b := undrawn(t, text), undrawn(t, again); a != b {
		t.Errorf("two plans of one state differ:\n%s", firstDifference(a, b))
	}
	plan := parsePlan(t, text)
	if a, b := meshWrites(plan.Writes), meshWrites(parsePlan(t, again).Writes); !slices.Equal(a, b) {
		t.Errorf("two plans of one state differ:\n%q\n%q", a, b)
	}
	if code != 2 || !plan.Stable {
		t.Errorf("exit code %d, stable: %t:\n%s", code, plan.Stable, text)
	}
	want, planned := map[string]int{}, meshWrites(plan.Writes)
	for _, p := range plan.Writes {
		if strings.HasSuffix(p.Resource, ".io") || p.Resource == "services" { // of the API server
			continue
		}
		key := p.Resource + "/" + p.Name
		switch {
		case key == heartbeatKey && p.Every != "1s":
			t.Errorf("the heartbeat recurs every %q", p.Every)
		case key == lock && p.DueIn != "25s":
			t.Errorf("the lock is taken away in %q", p.DueIn)
		}
		if p.Every == "" {
			want[p.Verb+" "+key]++
		}
	}

	record := e.Follow("cilium/", before+1)
	audit := w.Audit(t)
	o, _ := w.run("etcd-runner", nil, options()...)
	o.leads()
	o.until("the lock is gone, and a heartbeat there", func() bool { return e.Get(lock) == nil && len(eventsOf(record, heartbeatKey)) > 0 })
	o.until("all follows from what clusters publish", m.rests)
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	made, last := map[string]int{}, e.Revision()
	eventually(t, "all is recorded", func() bool {
		events := record.Events()
		return len(events) > 0 && events[len(events)-1].Kv.ModRevision >= last
	})
	for _, event := range record.Events() {
		key, verb := string(event.Kv.Key), "put"
		if event.Type == clientv3.EventTypeDelete {
			verb = "delete"
		}
		if key != heartbeatKey && !strings.HasPrefix(key, "cilium/.initlock/") {
			made[verb+" "+key]++
		}
	}
	if !maps.Equal(want, made) || len(made) < 2 {
		t.Errorf("planned %v\nmade %v", want, made)
	}
	if did := meshWrites(writesOf(w.requests(audit, "etcd-runner"))); !slices.Equal(planned, did) || len(did) < 10 {
		t.Errorf("planned %q\nmade %q", planned, did)
	}
}

// planMesh has a remote cluster publish what is to be created, and leaves a slice that is to be deleted.
func planMesh(m *mesh, e *kvstoretest.Etcd) {
	a, key := m.join("a", e, e.Endpoints()[0]), types.NamespacedName{Namespace: m.namespace, Name: "web"}
	m.service(key.Namespace, key.Name, "10.30.0.1", true)
	m.serviceExport(key.Namespace, key.Name)
	a.serve(key, 80, addressesOf(1, mostInSlice+1)...)
	a.export(key, 2001, "Headless", 80, 9090)
	key.Name = "far"
	a.export(key, 2001, "ClusterSetIP", 80)
	m.serviceImport(key.Namespace, "of-user", "ClusterSetIP")
	m.apply(endpointSlices, "EndpointSlice", key.Namespace, "left-over", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{
			discoveryv1.LabelManagedBy: meshManager, discoveryv1.LabelServiceName: "gone", sourceCluster: "a",
		}},
		"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{"10.40.0.1"}}},
	})
}

// ofMesh are the resources of what follows from remote clusters.
var ofMesh = []string{"services", "endpointslices.discovery.k8s.io", "serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"}

// meshWrites are the writes of what follows from remote clusters, each once. In how many steps an object is created depends on
// which cluster is read first, so that updates of new objects do not count.
func meshWrites(all []plannedWrite) (writes []string) {
	isNew := map[string]bool{}
	for _, p := range all {
		if p.Verb == "create" {
			isNew[p.Resource+" "+p.Name] = true
		}
	}
	for _, p := range all {
		if slices.Contains(ofMesh, p.Resource) && (p.Verb != "update" || p.Subresource != "" || !isNew[p.Resource+" "+p.Name]) {
			writes = append(writes, strings.TrimSpace(strings.Join([]string{p.Verb, p.Resource, p.Name, p.Subresource}, " ")))
		}
	}
	slices.Sort(writes)
	return slices.Compact(writes)
}
