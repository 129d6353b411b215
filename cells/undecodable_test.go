// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// What cannot be decoded is not absent. In a cluster where all is as it should be,
// one object at a time gets a value of another type in one of its fields, each in
// turn, while the operator runs and before it starts. No duty writes anything: not
// the object, and nothing else upon what it cannot see. Only the duties that need
// the field stop, and say so; the others go on. All kinds that duties read are in
// the cluster, so that a duty that is added is tested, too, or makes this fail.
func TestUndecodableFields(t *testing.T) {
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) {
			var base objects
			bubble(t, func(t *testing.T) { base = s.converge(t) })
			for _, c := range base.spoilt() {
				if _, needed := s.stops()[c.kind.name][c.path]; needed || !testing.Short() && !seedtest.RaceEnabled {
					t.Run(c.String(), func(t *testing.T) {
						bubble(t, func(t *testing.T) { s.later(t, base, c) })
						bubble(t, func(t *testing.T) { s.atStart(t, base, c) })
					})
				}
			}
		})
	}
}

// bubble runs an operator on one processor: on several Go runs timers of one bubble at the same time in one context of the
// race detector, which crashes by that now and then (go.dev/issue/78156). An operator has many timers.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	synctest.Test(t, f)
}

// setup is an operator with options that turn on some of the duties.
type setup struct {
	name string
	args []string
	// agents says that agents make identities.
	agents bool
	// multiPool says that nodes get CIDRs of CiliumPodIPPools.
	multiPool bool
}

var shared = []string{
	"--enable-ipv6=false", "--ipam=cluster-pool", "--cluster-pool-ipv4-cidr=10.0.0.0/16", "--skip-crd-creation",
	"--identity-allocation-mode=crd", "--nodes-gc-interval=1m", "--cilium-endpoint-gc-interval=1m",
	"--identity-gc-interval=1m", "--identity-heartbeat-timeout=2m", "--pod-restart-selector=", "--cilium-pod-namespace=" + agentNamespace,
}

// agentNamespace is the namespace of the agents, whose pods have the network of the node.
const agentNamespace = "agents"

var setups = []setup{
	{"agents make identities", []string{"--enable-cilium-endpoint-slice"}, true, false},
	{"the operator makes identities", []string{"--identity-management-mode=operator"}, false, false},
	{"slices of pods", []string{"--identity-management-mode=operator", "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim"}, false, false},
	{"CIDRs of pools", []string{"--ipam=multi-pool"}, true, true},
}

func (s setup) start(m *memory, more ...string) *inMemory {
	return m.start(slices.Concat(shared, s.args, more)...)
}

// settle lets the duties do all that there is to do.
func (m *memory) settle() {
	for range 8 {
		time.Sleep(time.Minute)
		m.stream.Bookmark()
	}
	synctest.Wait()
}

// objects are those of a cluster, by resource.
type objects map[string]map[slim.Key]map[string]any

// inputs is a cluster without what operators write.
func inputs(m *memory) {
	for i, name := range []string{"n1", "n2"} {
		m.put(kindNamed("Node"), parse(`{"metadata":{"name":%q},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.%d"}],
			"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"CiliumIsUp"}]}}`, name, i+1))
		m.put(kindNamed("Pod"), parse(`{
			"metadata":{"name":"agent-%s","namespace":%q,"labels":{"k8s-app":"cilium"}},"spec":{"nodeName":%q,"hostNetwork":true},
			"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, name, agentNamespace, name))
		m.put(kindNamed("CiliumNode"), parse(`{
			"metadata":{"name":%q,"labels":{"a":"b"},"annotations":{"cilium.io/x":"y"}},
			"spec":{"addresses":[{"type":"InternalIP","ip":"192.0.2.%d"}],"encryption":{"key":3},"bootid":"boot","health":{"ipv4":"192.0.2.9"},
				"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":10}}]},"min-allocate":1}},
			"status":{"alibaba-cloud":{},"ipam":{"used":{"10.0.0.1":{"owner":"x"}}}}}`, name, i+1))
	}
	m.put(kindNamed("Namespace"), parse(`{"metadata":{"name":"shop","labels":{"team":"red"}}}`))
	for i, name := range []string{"web-1", "web-2", "api-1"} {
		app, _, _ := strings.Cut(name, "-")
		m.put(kindNamed("Pod"), parse(`{
			"metadata":{"name":%q,"namespace":"shop","labels":{"app":%q}},
			"spec":{"nodeName":"n1","serviceAccountName":"default","containers":[{"name":"c","image":"i","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}]}]},
			"status":{"phase":"Running","startTime":"2000-01-01T00:00:00Z","hostIP":"192.0.2.1","podIP":"10.0.0.%d","podIPs":[{"ip":"10.0.0.%d"}]}}`, name, app, i+7, i+7))
	}
}

// services are a pool of addresses, and a Service that has one.
func services(m *memory) {
	m.put(kindNamed("CiliumLoadBalancerIPPool"), parse(`{
		"metadata":{"name":"blue"},
		"spec":{"blocks":[{"cidr":"10.9.0.0/24"}],"allowFirstLastIPs":"Yes","disabled":false,"serviceSelector":{}}}`))
	m.put(kindNamed("Service"), service("web"))
}

// policies are network policies that are valid.
func policies(m *memory) {
	const rule = `{"endpointSelector":{"matchLabels":{"app":"web"}},"egress":[{"toCIDR":["10.0.0.0/8"],"toPorts":[{"ports":[{"port":"80"}]}]}]}`
	m.put(kindNamed("CiliumNetworkPolicy"), parse(`{"metadata":{"name":"web","namespace":"shop"},"spec":`+rule+`}`))
	m.put(kindNamed("CiliumClusterwideNetworkPolicy"), parse(`{"metadata":{"name":"all"},"specs":[`+rule+`]}`))
}

func service(name string) map[string]any {
	return parse(`{
		"metadata":{"name":%q,"namespace":"shop","labels":{"lb":"yes"}},
		"spec":{"type":"LoadBalancer","ports":[{"port":80}],"ipFamilies":["IPv4"]},"status":{"loadBalancer":{}}}`, name)
}

// endpoints are what agents make of pods that have identities.
func endpoints(m *memory, identities map[string]int64) {
	for i, name := range []string{"web-1", "web-2", "api-1"} {
		app, _, _ := strings.Cut(name, "-")
		m.put(kindNamed("CiliumEndpoint"), parse(`{
			"metadata":{"name":%q,"namespace":"shop","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":%q,"uid":"uid-Pod-shop-%s"}]},
			"status":{"id":7,"state":"ready","identity":{"id":%d,"labels":["k8s:app=web"]},"external-identifiers":{"pod-name":"x"},
				"networking":{"addressing":[{"ipv4":"10.0.0.%d"}],"node":"192.0.2.1"},"encryption":{"key":3},
				"named-ports":[{"name":"http","port":8080,"protocol":"TCP"}],"policy":{"ingress":{"enforcing":true}}}}`, name, name, name, identities[app], i+7))
	}
}

func parse(text string, args ...any) (object map[string]any) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	text = `{"apiVersion":"x","kind":"y",` + strings.TrimPrefix(strings.TrimSpace(fmt.Sprintf(text, args...)), "{")
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		panic(fmt.Sprint(err, text))
	}
	return u.Object
}

// converge is a cluster in which there is nothing to do.
func (s setup) converge(t *testing.T) objects {
	m := newMemory(t)
	inputs(m)
	services(m)
	if s.multiPool {
		m.put(kindNamed("CiliumPodIPPool"), parse(`{"metadata":{"name":"default"},"spec":{"ipv4":{"cidrs":["10.0.0.0/16"],"maskSize":24}}}`))
	}
	policies(m)
	if s.agents {
		for i, app := range []string{"web", "api"} {
			m.put(kindNamed("CiliumIdentity"), parse(`{"metadata":{"name":"%d","labels":{"app":%q}},"security-labels":{"k8s:app":%q}}`, 20001+i, app, app))
		}
		endpoints(m, map[string]int64{"web": 20001, "api": 20002})
	}
	o := s.start(m, "--unmanaged-pod-watcher-interval=0") // agents may not have created the endpoints
	m.settle()
	if !s.agents {
		numbers := map[string]int64{}
		for key, identity := range m.snapshot()["ciliumidentities"] {
			app, _, _ := unstructured.NestedString(identity, "security-labels", "k8s:app")
			_, _ = fmt.Sscan(key.Name, new(int64))
			var n int64
			if _, err := fmt.Sscan(key.Name, &n); err != nil {
				t.Fatal(err)
			}
			numbers[app] = n
		}
		endpoints(m, numbers)
		m.settle()
	}
	s.reads(t, o, m.snapshot())
	o.stop(t)
	m.written()
	o = s.start(m)
	m.settle()
	if w, d := m.written(), o.degraded(); len(w) > 0 || d != "" {
		t.Fatalf("it has not converged: %v\n%s", w, d)
	}
	o.stop(t)
	return m.snapshot()
}

// reads checks that there is an object of all kinds that the duties read.
func (s setup) reads(t *testing.T, o *inMemory, all objects) {
	for _, rule := range k8s.LeastRole("all", o.graph(), true).Rules {
		for _, resource := range rule.Resources {
			if slices.Contains(rule.Verbs, "watch") && len(all[resource]) == 0 {
				if resource == "customresourcedefinitions" {
					continue // of these only metadata is watched, which the API server checks
				}
				if resource == "ciliumcidrgroups" {
					continue // there is one for a group of a cloud that a policy has, and none is looked up here
				}
				if resource == "ciliumendpointslices" && !slices.Contains(s.args, "--enable-cilium-endpoint-slice") {
					continue
				}
				t.Errorf("a duty watches %s, of which there is no object to be spoilt: add one to inputs, and what follows from its fields to stops", resource)
			}
		}
	}
}

// spoiltObject is an object with a value of another type at a path.
type spoiltObject struct {
	kind  kind
	key   slim.Key
	path  string // "" is the end of the object, which is cut off
	how   string
	whole map[string]any
	bad   map[string]any
}

func (c spoiltObject) String() string { return fmt.Sprintf("%s %s=%s", c.kind.name, c.path, c.how) }

// spoilt are all cases of the first object of each kind.
func (all objects) spoilt() (cases []spoiltObject) {
	for _, k := range kinds {
		keys := slices.SortedFunc(maps.Keys(all[k.gvr.Resource]), func(a, b slim.Key) int { return strings.Compare(a.String(), b.String()) })
		if len(keys) == 0 {
			continue
		}
		whole := all[k.gvr.Resource][keys[len(keys)-1]] // of pods, one that others are like
		c := spoiltObject{kind: k, key: keyOf(whole), whole: whole}
		if k.core != nil {
			cases = append(cases, c)
			continue
		}
		for name, value := range sortedByKey(whole) {
			if name != "apiVersion" && name != "kind" && name != "metadata" {
				c.spoil(value, []string{name}, &cases)
			}
		}
	}
	return cases
}

func sortedByKey(m map[string]any) func(func(string, any) bool) {
	return func(yield func(string, any) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// spoil adds the cases of a value and of its parts.
func (c spoiltObject) spoil(value any, path []string, cases *[]spoiltObject) {
	var wrong []any
	switch value := value.(type) {
	case string:
		wrong = []any{int64(7)}
	case map[string]any:
		wrong = []any{"wrong"}
		for name, part := range sortedByKey(value) {
			c.spoil(part, append(slices.Clone(path), name), cases)
		}
	case []any:
		wrong = []any{"wrong", []any{int64(7)}}
		if len(value) > 0 {
			if _, ok := value[0].(map[string]any); ok {
				c.spoil(value[0], append(slices.Clone(path), "0"), cases)
			}
		}
	default:
		wrong = []any{"wrong"}
	}
	for _, w := range wrong {
		one := c
		text, _ := json.Marshal(w)
		one.path, one.how = strings.Join(path, "."), string(text)
		one.bad = replaced(c.whole, path, w).(map[string]any)
		*cases = append(*cases, one)
	}
}

func replaced(value any, path []string, by any) any {
	if len(path) == 0 {
		return by
	}
	switch value := runtime.DeepCopyJSONValue(value).(type) {
	case map[string]any:
		value[path[0]] = replaced(value[path[0]], path[1:], by)
		return value
	case []any:
		value[0] = replaced(value[0], path[1:], by)
		return value
	}
	panic("no such path")
}

// show has the server show the object as it cannot be decoded.
func (c spoiltObject) show(m *memory) {
	if c.kind.core != nil {
		m.cut(c.kind, c.whole)
	} else {
		m.put(c.kind, c.bad)
	}
}

// The duties that are watched for going on.
const (
	pool        = "ipam"
	nodeGC      = "nodegc"
	endpointGC  = "endpointgc"
	identityGC  = "identitygc"
	lbIPAM      = "lbipam"
	podCIDRs    = "spec.ipam.podCIDRs"
	ofIdentity  = "status.identity.id"
	ofEndpoints = "endpoints"
)

// stops are the duties that stop, everywhere, for what is at a path of an object of
// a kind. All others go on.
var stops = map[string]map[string]string{
	"CiliumNode":          {podCIDRs: pool},
	"CiliumEndpoint":      {ofIdentity: identityGC},
	"CiliumEndpointSlice": {ofEndpoints: identityGC},
	"Pod":                 {"": identityGC},
	"Namespace":           {"": identityGC},
	"Service":             {"": lbIPAM},
	"CiliumLoadBalancerIPPool": {
		"spec.blocks.0.cidr": lbIPAM, "spec.allowFirstLastIPs": lbIPAM, "spec.disabled": lbIPAM, "spec.serviceSelector": lbIPAM,
	},
}

// stopsOfPools are those of nodes whose CIDRs are of pools.
var stopsOfPools = map[string]map[string]string{
	"CiliumNode":      {"spec.ipam.pools.allocated.0.cidrs": pool},
	"CiliumPodIPPool": {"spec.ipv4.cidrs": pool, "spec.ipv4.maskSize": pool},
}

func (s setup) stops() map[string]map[string]string {
	if !s.multiPool {
		return stops
	}
	all := maps.Clone(stops)
	maps.Copy(all, stopsOfPools)
	return all
}

// stopped is the duty that stops for the case, "" for none.
func (s setup) stopped(c spoiltObject) string {
	for path, duty := range s.stops()[c.kind.name] {
		ancestor := path == c.path || strings.HasPrefix(path, c.path+".")
		part := ofEndpoints == path && strings.HasPrefix(c.path, path) && !strings.HasSuffix(c.path, ".unknown")
		if (ancestor || part) && !(s.agents && c.kind.core != nil && c.kind.name != "Service") {
			return duty
		}
	}
	return ""
}

// later spoils the object while the operator runs.
func (s setup) later(t *testing.T, base objects, c spoiltObject) {
	m := base.server(t)
	o := s.start(m)
	defer o.stop(t)
	m.settle()
	c.show(m)
	m.settle()
	if w := s.wrong(c, m.written()); len(w) > 0 {
		t.Errorf("later it writes %v\n%s", w, o.degraded())
	}
	s.named(t, o, c)
	m.put(c.kind, c.whole)
	m.settle()
	if w, d := s.wrong(c, m.written()), o.degraded(); len(w) > 0 && !s.hasSuccessor(c) || d != "" {
		t.Errorf("after the repair it writes %v\n%s", w, d)
	}
}

// wrong are the writes that are not to be. In the place of a slice, or of an identity
// at the start, that cannot be decoded, by agents neither, there comes another one.
func (s setup) wrong(c spoiltObject, writes []string) []string {
	if strings.HasSuffix(c.kind.name, "NetworkPolicy") { // its condition tells, and says so no more after the repair
		return slices.DeleteFunc(writes, func(w string) bool {
			return w == "PATCH "+c.kind.gvr.Resource+" "+c.key.String()+"/status"
		})
	}
	if c.kind.name == "CiliumLoadBalancerIPPool" { // its status tells that the spec is not valid
		return slices.DeleteFunc(writes, func(w string) bool { return w == "PATCH ciliumloadbalancerippools blue/status" })
	}
	if s.multiPool && c.kind.name == "CiliumNode" { // and that of the node tells what cannot be decoded
		return slices.DeleteFunc(writes, func(w string) bool { return w == "PUT ciliumnodes "+c.key.Name+"/status" })
	}
	if !s.hasSuccessor(c) {
		return writes
	}
	return slices.DeleteFunc(writes, func(w string) bool {
		text := strings.Fields(w)
		if text[1] == "ciliumidentities" {
			return text[0] == "POST"
		}
		return text[1] == "ciliumendpointslices" && text[2] != c.key.String()
	})
}

func (s setup) hasSuccessor(c spoiltObject) bool {
	switch c.kind.name {
	case "CiliumEndpointSlice":
		return strings.HasPrefix(c.path, ofEndpoints) || c.path == "namespace"
	case "CiliumIdentity":
		return !s.agents && strings.HasPrefix(c.path, "security-labels")
	}
	return false
}

// atStart spoils it before.
func (s setup) atStart(t *testing.T, base objects, c spoiltObject) {
	m := base.server(t)
	c.show(m)
	o := s.start(m)
	defer o.stop(t)
	m.settle()
	if w := s.wrong(c, m.written()); len(w) > 0 {
		t.Errorf("at the start it writes %v\n%s", w, o.degraded())
	}
	s.named(t, o, c)
	chores(m)
	m.settle()
	if undone, want := m.undone(), s.stopped(c); strings.Join(undone, " ") != want {
		t.Errorf("undone are the chores of %v, want %q\n%s", undone, want, o.degraded())
	}
	m.put(c.kind, c.whole)
	m.settle()
	m.settle()
	if undone, d := m.undone(), o.degraded(); len(undone) > 0 || d != "" {
		t.Errorf("after the repair undone are the chores of %v\n%s", undone, d)
	}
	for _, w := range s.wrong(c, m.written()) {
		counts := "PATCH ciliumloadbalancerippools blue/status" // there is a Service more
		if strings.HasSuffix(c.kind.name, "NetworkPolicy") {
			continue // the condition of one that is valid again
		}
		if text := strings.Fields(w); base[text[1]][keyOfText(text[2])] != nil && !s.hasSuccessor(c) && w != counts {
			t.Errorf("it writes what was there: %s", w)
		}
	}
	m.judge(base)
}

func keyOfText(text string) slim.Key {
	text = strings.TrimSuffix(text, "/status")
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return slim.Key{Namespace: namespace, Name: name}
	}
	return slim.Key{Name: text}
}

// named checks that what stops a duty is named, with its field.
func (s setup) named(t *testing.T, o *inMemory, c spoiltObject) {
	if duty := s.stopped(c); duty != "" {
		text := o.degraded()
		if field, _, _ := strings.Cut(c.path, ".0"); !strings.Contains(text, c.key.Name) || !strings.Contains(text, field) {
			t.Errorf("health does not name %s of %s:\n%s", field, c.key, text)
		}
	}
}

func (all objects) server(t *testing.T) *memory {
	m := newMemory(t)
	for _, k := range kinds {
		for _, object := range all[k.gvr.Resource] {
			m.put(k, object)
		}
	}
	return m
}

// chores are things to do for the duties.
func chores(m *memory) {
	m.put(kindNamed("Node"), parse(`{"metadata":{"name":"n9"}}`))
	m.put(kindNamed("CiliumNode"), parse(`{"metadata":{"name":"n9"},"spec":{"ipam":{"pools":{"requested":[{"pool":"default","needed":{"ipv4-addrs":10}}]}}}}`))
	m.put(kindNamed("CiliumNode"), parse(`{"metadata":{"name":"left-over"},"spec":{"ipam":{"podCIDRs":["10.0.200.0/24"]}}}`))
	m.put(kindNamed("CiliumEndpoint"), parse(`{"metadata":{"name":"left-over","namespace":"shop"},"status":{}}`))
	m.put(kindNamed("Service"), service("new"))
	m.put(kindNamed("CiliumIdentity"), parse(`{"metadata":{"name":"30000"},"security-labels":{"k8s:app":"none"}}`))
}

// undone are the duties that have not done theirs.
func (m *memory) undone() (duties []string) {
	for duty, object := range map[string]map[string]any{
		nodeGC:     m.get(kindNamed("CiliumNode"), slim.Key{Name: "left-over"}),
		endpointGC: m.get(kindNamed("CiliumEndpoint"), slim.Key{Namespace: "shop", Name: "left-over"}),
		identityGC: m.get(kindNamed("CiliumIdentity"), slim.Key{Name: "30000"}),
	} {
		if object != nil {
			duties = append(duties, duty)
		}
	}
	svc := m.get(kindNamed("Service"), slim.Key{Namespace: "shop", Name: "new"})
	if addresses, _, _ := unstructured.NestedSlice(svc, "status", "loadBalancer", "ingress"); len(addresses) == 0 {
		duties = append(duties, lbIPAM)
	}
	if len(m.cidrs("n9")) == 0 {
		duties = append(duties, pool)
	}
	slices.Sort(duties)
	return duties
}

func (m *memory) cidrs(name string) []string {
	return cidrsOf(m.get(kindNamed("CiliumNode"), slim.Key{Name: name}))
}

// cidrsOf are the CIDRs of a node, of the cluster's or of other pools.
func cidrsOf(node map[string]any) []string {
	cidrs, _, _ := unstructured.NestedStringSlice(node, "spec", "ipam", "podCIDRs")
	allocated, _, _ := unstructured.NestedSlice(node, "spec", "ipam", "pools", "allocated")
	for _, p := range allocated {
		of, _, _ := unstructured.NestedStringSlice(p.(map[string]any), "cidrs")
		cidrs = append(cidrs, of...)
	}
	return cidrs
}

// judge checks that nothing was given twice, and that no endpoint is lost.
func (m *memory) judge(base objects) {
	told := map[string]bool{}
	for _, slice := range m.snapshot()["ciliumendpointslices"] {
		endpoints, _, _ := unstructured.NestedSlice(slice, "endpoints")
		for _, e := range endpoints {
			name, _, _ := unstructured.NestedString(e.(map[string]any), "name")
			told[name] = true
		}
	}
	for key := range base["pods"] {
		if len(base["ciliumendpointslices"]) > 0 && !told[key.Name] && key.Namespace != agentNamespace {
			m.t.Errorf("%s is in no slice", key)
		}
	}
	given := netip.MustParsePrefix(m.cidrs("n9")[0])
	for key, object := range base["ciliumnodes"] {
		cidrs := cidrsOf(object)
		if len(cidrs) != 1 || netip.MustParsePrefix(cidrs[0]).Overlaps(given) {
			m.t.Errorf("%s has %v, and %s is given", key, cidrs, given)
		}
	}
}
