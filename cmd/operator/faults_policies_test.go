// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// policiesUnderFaults are network policies that come, go, become invalid and valid, and get and lose groups; groups whose
// members change, and which cannot be looked up for a while; and derived policies and status that are edited by hand.
type policiesUnderFaults struct {
	*turmoil
	groups *groups
	all    []*livingPolicy
	terms  int // that have ended

	mu     sync.Mutex
	ever   map[netip.Addr]bool // members that a group has or had
	fixed  map[string]bool     // derived policies that may not be deleted, by name
	hands  map[types.UID]bool  // those that were deleted by hand
	others map[types.UID]bool  // policies that have the condition of another writer

	count struct{ derived, gone int } // derived policies that were made, and deleted
}

// livingPolicy is a policy that exists.
type livingPolicy struct {
	resource schema.GroupVersionResource
	name     string
	uid      types.UID
	form     policyForm
}

// policyForm is what the rules of a policy may be, and what follows of them.
//
// In derived rules $NAMESPACE are the labels that select a namespace, $LABELS those of the policy, and $a the CIDRs of group a.
type policyForm struct {
	spec, specs string
	// finding is the message of the condition if the policy is not valid.
	finding string
	// derived are the rules that are derived, if the policy has groups.
	derived string
	// fails says that the policy has groups and nothing can be derived.
	fails bool
}

// groupNames are those of groups. Of a group the members have the same first bytes; the last one has none.
var groupNames = []string{"a", "b", "c", "empty"}

const mostPolicies = 12

var policyForms = []policyForm{
	{spec: `{"endpointSelector":{},"egress":[{"toEntities":["all"]}]}`},
	{
		spec:    `{"endpointSelector":{},"egress":[{"toPorts":[{"ports":[{"port":"99999"}]}]}]}`,
		finding: `unable to parse port: strconv.ParseUint: parsing "99999": value out of range`,
	},
	{
		specs: `[{"endpointSelector":{},"ingress":[{"fromEntities":["all"],"fromCIDR":["10.0.0.0/8"]}]},{"endpointSelector":{},"ingress":[]},` +
			`{"endpointSelector":{},"egress":[{"toPorts":[{"ports":[{"port":"88888"}]}]}]}]`,
		finding: "combining FromCIDR and FromEntities is not supported yet\nrule must have at least one of Ingress, IngressDeny, Egress, EgressDeny\n" + `unable to parse port: strconv.ParseUint: parsing "88888": value out of range`,
	},
	{
		spec: `{"endpointSelector":{"matchLabels":{"app":"web"}},"egress":[{"toGroups":` + inGroups("a") + `,"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}]}]}]}`,
		derived: `[{"endpointSelector":{"matchLabels":{"any:app":"web"$NAMESPACE}},"egress":[{"toCIDRSet":[$a],"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}]}]}],` +
			`"enableDefaultDeny":{"egress":true,"ingress":false},"labels":$LABELS}]`,
	},
	{
		spec:  `{"endpointSelector":{"matchLabels":{"k8s:app":"db"}},"egress":[{"toGroups":` + inGroups("b", "a") + `}]}`,
		specs: `[{"endpointSelector":{"matchLabels":{"app":"db"}},"ingressDeny":[{"fromGroups":` + inGroups("c") + `}]}]`,
		derived: `[{"endpointSelector":{"matchLabels":{"k8s:app":"db"$NAMESPACE}},"egress":[{"toCIDRSet":[$b,$a]}],"enableDefaultDeny":{"egress":true,"ingress":false},"labels":$LABELS},` +
			`{"endpointSelector":{"matchLabels":{"any:app":"db"$NAMESPACE}},"ingressDeny":[{"fromCIDRSet":[$c]}],"enableDefaultDeny":{"egress":false,"ingress":true},"labels":$LABELS}]`,
	},
	{
		spec: `{"endpointSelector":{"matchLabels":{"app":"web"}},"ingress":[{"fromGroups":` + inGroups("empty") + `}]}`,
		derived: `[{"endpointSelector":{"matchLabels":{"any:app":"web"$NAMESPACE}},"ingress":[{"fromCIDRSet":[]}],` +
			`"enableDefaultDeny":{"egress":false,"ingress":true},"labels":$LABELS}]`,
	},
}

// unlikely has groups, and agents do not accept it.
var unlikely = policyForm{
	spec:    `{"endpointSelector":{},"egress":[{"toCIDRSet":[{"cidr":"10.9.0.0/16"}],"toGroups":` + inGroups("a") + `}]}`,
	finding: "combining ToCIDRSet and ToGroups is not supported yet", fails: true,
}

// otherCondition is one that another writer has set.
const otherCondition = `{"type":"example.com/other","status":"True"}`

func networkPoliciesUnderFaults(f *turmoil) underFaults {
	p := &policiesUnderFaults{
		turmoil: f, groups: newGroups(f.t), ever: map[netip.Addr]bool{}, fixed: map[string]bool{}, hands: map[types.UID]bool{},
		others: map[types.UID]bool{},
	}
	for range groupNames {
		p.moveMembers()
	}
	p.repair()
	for resource := range policyKinds {
		f.witness(resource, p.see)
		f.follows(resource)
	}
	return underFaults{
		name: "network policies",
		args: []string{"--derived-policies-refresh-interval=2s"},
		churn: []func(){
			p.come, p.come, p.come, p.leave, p.edit, p.edit, p.edit, p.moveMembers, p.moveMembers, p.loseCondition, p.blame, p.loseEntry, p.spoilDerived,
			p.dropDerived, p.fail,
		},
		newTerm: func() { p.repair(); p.edit(); p.come(); p.terms++ },
		last:    func() { p.repair(); p.edit(); p.moveMembers(); p.loseCondition() },
		rest:    p.rest,
		missing: p.missing,
	}
}

// client is that of the policies of a kind.
func (p *policiesUnderFaults) client(resource schema.GroupVersionResource) (namespace string, client dynamic.ResourceInterface) {
	if resource == v2.CiliumNetworkPolicyResource {
		namespace = p.namespace
	}
	return namespace, p.dynamic.Resource(resource).Namespace(namespace)
}

func (p *policiesUnderFaults) someForm() policyForm { return policyForms[p.r.IntN(len(policyForms))] }

// setRules gives an object the rules of a form.
func setRules(u *unstructured.Unstructured, form policyForm) error {
	for field, text := range map[string]string{"spec": form.spec, "specs": form.specs} {
		delete(u.Object, field)
		if text == "" {
			continue
		}
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		u.Object[field] = value
	}
	return nil
}

func (p *policiesUnderFaults) come() {
	form, ofNamespace := p.someForm(), p.r.IntN(2) == 0
	if len(p.all) >= mostPolicies {
		return
	}
	l := &livingPolicy{resource: v2.CiliumClusterwideNetworkPolicyResource, name: fmt.Sprint("policy-", p.number()), form: form}
	if ofNamespace {
		l.resource = v2.CiliumNetworkPolicyResource
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cilium.io/v2", "kind": policyKinds[l.resource], "metadata": map[string]any{"name": l.name}}}
	_, client := p.client(l.resource)
	err := setRules(u, form)
	if err == nil {
		u, err = client.Create(p.t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	l.uid = u.GetUID()
	p.all = append(p.all, l)
	p.want(l.uid, "policy "+l.name)
	p.fix(l, form.derived != "")
	p.writeStatus(l, `{"conditions":[`+otherCondition+`]}`)
}

// fix says whether what is derived from a policy has to stay.
func (p *policiesUnderFaults) fix(l *livingPolicy, stays bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name := derivedName(l.name, l.uid); stays {
		if _, known := p.fixed[name]; !known {
			p.fixed[name] = true
		}
	} else {
		p.fixed[name] = false // from now on: the operator may be late
	}
}

func (p *policiesUnderFaults) leave() {
	i, ok := one(p.r, p.all)
	if !ok || len(p.all) < mostPolicies/2 {
		return
	}
	l := p.all[i]
	p.all = slices.Delete(p.all, i, i+1)
	p.condemn(l.uid, "policy "+l.name)
	p.fix(l, false) // the garbage collector deletes it
	_, client := p.client(l.resource)
	if err := client.Delete(p.t.Context(), l.name, metav1.DeleteOptions{}); err != nil {
		p.t.Error(err)
	}
}

func (p *policiesUnderFaults) edit() { p.editTo(p.someForm()) }

func (p *policiesUnderFaults) editTo(form policyForm) {
	if i, ok := one(p.r, p.all); ok {
		p.setForm(p.all[i], form)
	}
}

func (p *policiesUnderFaults) setForm(l *livingPolicy, form policyForm) {
	p.t.Helper()
	p.fix(l, form.derived != "" || form.fails)
	l.form = form
	_, client := p.client(l.resource)
	eventually(p.t, "policy "+l.name+" is edited", func() bool { // the operator writes its status meanwhile
		u, err := client.Get(p.t.Context(), l.name, metav1.GetOptions{})
		if err == nil {
			err = setRules(u, form)
		}
		if err == nil {
			_, err = client.Update(p.t.Context(), u, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsConflict(err) {
			p.t.Errorf("editing policy %s: %v", l.name, err)
		}
		return !apierrors.IsConflict(err)
	})
}

// moveMembers gives a group other members.
func (p *policiesUnderFaults) moveMembers() {
	i := p.r.IntN(len(groupNames) - 1)
	var members []string
	p.mu.Lock()
	for n := range 5 {
		if p.r.IntN(2) == 0 {
			members = append(members, fmt.Sprintf("10.%d.0.%d", i+1, n))
			p.ever[netip.MustParseAddr(members[len(members)-1])] = true
		}
	}
	p.mu.Unlock()
	p.groups.set(groupNames[i], append(members, fmt.Sprintf("fd00::%d", i+1))...)
}

// fail has a group fail for the rest of the second term, or makes a policy one of which nothing can be derived: its retries have
// a back-off, which ends with the term.
func (p *policiesUnderFaults) fail() {
	kind := p.r.IntN(2)
	switch {
	case p.terms != 1:
	case kind == 0:
		p.groups.set(groupNames[p.r.IntN(len(groupNames)-1)])
	default:
		p.editTo(unlikely)
	}
}

// repair has all groups be found, and something be derived from each policy with groups.
func (p *policiesUnderFaults) repair() {
	for i, name := range groupNames[:len(groupNames)-1] {
		p.mu.Lock()
		p.ever[netip.MustParseAddr(fmt.Sprint("fd00::", i+1))] = true
		p.mu.Unlock()
		if p.groups.members[name] == nil {
			p.groups.set(name, fmt.Sprintf("fd00::%d", i+1))
		}
	}
	for _, l := range p.all {
		if l.form.fails {
			p.setForm(l, policyForms[3])
		}
	}
}

// writeStatus edits the status of a policy by hand.
func (p *policiesUnderFaults) writeStatus(l *livingPolicy, status string) {
	namespace, _ := p.client(l.resource)
	p.patchIfThere(l.resource, namespace, l.name, `{"status":`+status+`}`, "status")
}

func (p *policiesUnderFaults) editStatus(status string) {
	if i, ok := one(p.r, p.all); ok {
		p.writeStatus(p.all[i], status)
	}
}

func (p *policiesUnderFaults) loseCondition() {
	p.editStatus(`{"conditions":[` + otherCondition + `]}`)
}

func (p *policiesUnderFaults) blame() {
	p.editStatus(`{"conditions":[{"type":"Valid","status":"False","message":"said by hand"},` + otherCondition + `]}`)
}

// loseEntry takes what the status says of derived policies, and adds what is not true.
func (p *policiesUnderFaults) loseEntry() {
	i, ok := one(p.r, p.all)
	if !ok {
		return
	}
	name := derivedName(p.all[i].name, p.all[i].uid)
	p.writeStatus(p.all[i], fmt.Sprintf(`{"derivativePolicies":{%q:null,"x-groups-y":{"ok":true}}}`, name))
}

// spoilDerived edits a derived policy by hand.
func (p *policiesUnderFaults) spoilDerived() {
	if i, ok := one(p.r, p.all); ok {
		namespace, _ := p.client(p.all[i].resource)
		p.patchIfThere(p.all[i].resource, namespace, derivedName(p.all[i].name, p.all[i].uid), `{"specs":[{"endpointSelector":{},"egress":[]}],"metadata":{"labels":{"by":"hand"}}}`)
	}
}

// dropDerived deletes a derived policy by hand.
func (p *policiesUnderFaults) dropDerived() {
	i, ok := one(p.r, p.all)
	if !ok {
		return
	}
	_, client := p.client(p.all[i].resource)
	u, err := client.Get(p.t.Context(), derivedName(p.all[i].name, p.all[i].uid), metav1.GetOptions{})
	if err != nil {
		return
	}
	p.mu.Lock()
	p.hands[u.GetUID()] = true
	p.mu.Unlock()
	_ = client.Delete(p.t.Context(), u.GetName(), metav1.DeleteOptions{})
}

// see judges each state of each policy: a derived one selects members alone, and none where there are none; it is not deleted
// while its policy has groups; and what others have written to the status of a policy stays.
func (p *policiesUnderFaults) see(kind watch.EventType, u *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.GetLabels()["io.cilium.network.policy.kind"] != "derivative" {
		p.seeOthers(kind, u)
		return
	}
	if kind == watch.Added {
		p.count.derived++
	}
	if kind == watch.Deleted {
		p.count.gone++
		if p.fixed[u.GetName()] && !p.hands[u.GetUID()] {
			p.t.Errorf("derived policy %s was deleted, and its policy has groups", u.GetName())
		}
		return
	}
	specs, _, _ := unstructured.NestedSlice(u.Object, "specs")
	for _, spec := range specs {
		rule, _ := spec.(map[string]any)
		for list, cidrs := range map[string]string{"ingress": "fromCIDRSet", "ingressDeny": "fromCIDRSet", "egress": "toCIDRSet"} {
			entries, _ := rule[list].([]any)
			for _, e := range entries {
				p.seeEntry(u, e.(map[string]any)[cidrs])
			}
		}
	}
}

// seeEntry judges the list of CIDRs of an entry, which selects all peers if it is absent.
func (p *policiesUnderFaults) seeEntry(u *unstructured.Unstructured, value any) {
	set, listed := value.([]any)
	if !listed {
		p.t.Errorf("derived policy %s has an entry that selects everything: %v", u.GetName(), u.Object["specs"])
	}
	for _, c := range set {
		cidr, err := netip.ParsePrefix(fmt.Sprint(c.(map[string]any)["cidr"]))
		if err != nil || !cidr.IsSingleIP() || !p.ever[cidr.Addr()] {
			p.t.Errorf("derived policy %s selects %v, which was never in a group", u.GetName(), c)
		}
	}
}

// seeOthers sees that the condition of another writer stays.
func (p *policiesUnderFaults) seeOthers(kind watch.EventType, u *unstructured.Unstructured) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	has := slices.ContainsFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "example.com/other" })
	if p.others[u.GetUID()] && !has && kind != watch.Deleted {
		p.t.Errorf("policy %s has lost the condition of another writer: %v", u.GetName(), conditions)
	}
	p.others[u.GetUID()] = has
}

// rest: each policy has its condition, and what is to be derived from it.
func (p *policiesUnderFaults) rest() error {
	var errs []error
	for _, l := range p.all {
		if err := p.restOf(l); err != nil {
			errs = append(errs, fmt.Errorf("policy %s: %w", l.name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *policiesUnderFaults) restOf(l *livingPolicy) error {
	_, client := p.client(l.resource)
	u, err := client.Get(p.t.Context(), l.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want := "True Policy validation succeeded"
	if l.form.finding != "" {
		want = "False " + l.form.finding
	}
	status, message := validOf(u)
	if has := status + " " + message; has != want {
		return fmt.Errorf("its condition is %q, not %q", has, want)
	}
	name := derivedName(l.name, l.uid)
	entries, _, _ := unstructured.NestedMap(u.Object, "status", "derivativePolicies")
	derived, err := client.Get(p.t.Context(), name, metav1.GetOptions{})
	if l.form.derived == "" {
		if !apierrors.IsNotFound(err) || len(entries) > 0 {
			return fmt.Errorf("it has no groups, and a derived policy (%v), or the status %v", err, entries)
		}
		return nil
	}
	switch {
	case err != nil:
		return err
	case len(entries) != 1 || derivedEntry(u, name) != "ok":
		return fmt.Errorf("its status is %v", entries)
	}
	return p.isDerived(l, derived)
}

// isDerived says how a derived policy differs from what it is to be.
func (p *policiesUnderFaults) isDerived(l *livingPolicy, d *unstructured.Unstructured) error {
	kind := policyKinds[l.resource]
	namespace, _ := p.client(l.resource)
	labels := []string{labelOfPolicy("derived-from", kind), labelOfPolicy("name", l.name)}
	selects := ""
	if namespace != "" {
		labels = append(labels, labelOfPolicy("namespace", namespace))
		selects = fmt.Sprintf(`,"k8s:io.kubernetes.pod.namespace":%q`, namespace)
	}
	labels = append(labels, labelOfPolicy("uid", string(l.uid)))
	replacer := []string{"$NAMESPACE", selects, "$LABELS", "[" + strings.Join(labels, ",") + "]"}
	for group, members := range p.groups.members {
		var cidrs []string
		for _, m := range members {
			addr := netip.MustParseAddr(m)
			cidrs = append(cidrs, fmt.Sprintf(`{"cidr":%q}`, netip.PrefixFrom(addr, addr.BitLen())))
		}
		replacer = append(replacer, "$"+group, strings.Join(cidrs, ","))
	}
	text := strings.NewReplacer(replacer...).Replace(l.form.derived)
	var want []any
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if has := d.Object["specs"]; !reflect.DeepEqual(has, any(want)) || d.Object["spec"] != nil {
		return fmt.Errorf("the derived policy has %v, not %v", has, want)
	}
	wantLabels := map[string]string{"io.cilium.network.policy.parent.uuid": string(l.uid), "io.cilium.network.policy.kind": "derivative"}
	owners := d.GetOwnerReferences()
	if !maps.Equal(d.GetLabels(), wantLabels) || len(owners) != 1 || owners[0].UID != l.uid || owners[0].Kind != kind {
		return fmt.Errorf("the derived policy has the labels %v, and the owners %v", d.GetLabels(), owners)
	}
	if status, _ := validOf(d); status != "True" {
		return fmt.Errorf("the derived policy has the condition %q", status)
	}
	return nil
}

// labelOfPolicy is a label that agents give to the rules of a policy.
func labelOfPolicy(key, value string) string {
	return fmt.Sprintf(`{"key":"io.cilium.k8s.policy.%s","source":"k8s","value":%q}`, key, value)
}

func (p *policiesUnderFaults) missing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count.derived < 5 || p.count.gone < 2 {
		return fmt.Errorf("%d of 5 policies were derived, and %d of 2 of these deleted", p.count.derived, p.count.gone)
	}
	return nil
}
