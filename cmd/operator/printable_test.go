// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// K6 of the contract's tenants.md: whatever stands in the fields of objects, nothing that the operator shows (log, plan, pages, each command, Events,
// statuses of objects) controls a terminal, turns the direction of writing, or looks like a line of its own. Each text of an object of each kind is one
// that does, and each key of a map, as far as the API server accepts that. The seed chooses which of several such texts it is. Half of the objects come
// while the operator runs, the others before a plan and the next start.
func TestTextsOfOthersAreEscaped(t *testing.T) {
	h := newHostility(t)
	h.launch()
	h.create(0)
	h.explainAll()
	h.servesOthers("hostile texts", servedWithin)
	h.rests("hostile texts", 3*mostWork)
	h.alive()
	h.reads()
	h.ends()
	h.create(1)
	h.plans()
	h.args = append(h.args, "--log-opt=format=json")
	h.launch()
	h.servesOthers("a start with hostile texts", startsWithin)
	h.rests("a start with hostile texts", 3*mostWork)
	h.alive()
	h.explainAll()
	h.reads()
	h.readsPages()
	h.readsStatuses()
	h.readsEvents()
	h.ends()
	t.Logf("%d texts of %d objects were accepted", h.texts, len(h.keys))
	if len(h.keys) < 100 || h.texts < 700 {
		t.Errorf("only %d texts of %d objects were accepted: the test shows nothing", h.texts, len(h.keys))
	}
}

// hostility is an operator with all duties, among objects with hostile texts.
type hostility struct {
	*largest
	random   *rand.Rand
	schemas  schemas
	texts    int                          // how many there are
	keys     []string                     // KIND/NAMESPACE/NAME of the objects
	fresh    []string                     // those that are not explained yet
	in       map[string]giant             // by key
	statuses map[string]map[string]string // texts that the test wrote into statuses, by key and place
	filled   map[string]bool              // by kind: it has an object with all fields
	remotes  string                       // the directory of remote clusters
}

// unescaped are characters that encoders of JSON leave as they are.
const unescaped = "\u202e\u009b31m"

func newHostility(t *testing.T) *hostility {
	t.Helper()
	l := newLargest(t)
	h := &hostility{
		largest: l, random: rand.New(rand.NewPCG(seedtest.Seed(t), 0)), schemas: schemas{l, map[schema.GroupVersion]set{}},
		in: map[string]giant{}, statuses: map[string]map[string]string{}, filled: map[string]bool{}, remotes: t.TempDir(),
	}
	h.putHostile()
	if err := os.WriteFile(filepath.Join(h.remotes, "peer"), []byte("endpoints: ["+l.etcd.Endpoints()[0]+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.args = append(h.args, "--clustermesh-config="+h.remotes, "--enable-metrics", "--operator-prometheus-serve-addr=127.0.0.1:0",
		"--operator-pprof", "--operator-pprof-address=127.0.0.1", "--operator-pprof-port=0")
	return h
}

// create makes objects of half of the giants, and of the kinds that have none with all fields yet.
func (h *hostility) create(half int) {
	h.t.Helper()
	objects, texts := len(h.keys), h.texts
	for i, g := range giants {
		if i/2%2 != half {
			continue
		}
		for _, b := range g.beside {
			h.apply(b)
		}
		name := fmt.Sprintf("hostile-%d", i)
		if n := h.createHostile(g, name, h.random, i%2 == 0); n > 0 {
			h.made(g, name, n)
		} else {
			h.t.Logf("%s: the API server accepts no such text", g)
		}
		if !h.filled[g.kind] {
			h.filled[g.kind] = true
			f := h.schemas.of(g)
			f.text = printabletest.Texts[h.random.IntN(len(printabletest.Texts))] + unescaped
			name := fmt.Sprintf("filled-%d", i)
			n, status := h.createFilled(f, g, name)
			h.made(g, name, n)
			h.statuses[h.keys[len(h.keys)-1]] = status
		}
	}
	h.t.Logf("%d texts of %d objects were accepted", h.texts-texts, len(h.keys)-objects)
}

func (h *hostility) made(g giant, name string, texts int) {
	key := g.kind + "/" + g.namespace() + "/" + name
	if g.global {
		key = g.kind + "/" + name
	}
	h.keys, h.fresh, h.texts = append(h.keys, key), append(h.fresh, key), h.texts+texts
	h.in[key] = g
}

// explainAll reads what the operator has to say of the objects that are new.
func (h *hostility) explainAll() {
	h.t.Helper()
	var looks []look
	for _, key := range h.fresh {
		looks = append(looks, look{Args: []string{"explain", key, "--operator-sock-path=" + h.o.socket}})
	}
	h.fresh = nil
	for _, l := range take(h.t, looks...) {
		l.succeeds(h.t)
		l.isPrintable(h.t)
	}
}

// isPrintable checks what a command has printed.
func (l look) isPrintable(t *testing.T) {
	t.Helper()
	what := fmt.Sprintf("%q", l.Args)
	printabletest.Check(t, "the output of "+what, l.Stdout)
	printabletest.Check(t, "the errors of "+what, l.Stderr)
}

// ends stops the operator, and reads its log.
func (h *hostility) ends() {
	h.t.Helper()
	if code := h.o.stop(); code != 0 {
		h.t.Errorf("the operator ended with %d", code)
	}
	printabletest.CheckEscaped(h.t, "the log", h.o.log.String())
}

// plans reads the plan of what the next start does, in both forms, and the log of each.
func (h *hostility) plans() {
	h.t.Helper()
	kubeconfig := h.UserKubeconfig(h.t, "planner", "system:masters")
	var both sync.WaitGroup
	for _, form := range []string{"text", "json"} {
		both.Go(func() {
			stdout, log, code, err := h.planWithLog(kubeconfig, append(slices.Clone(h.args), "-o", form, "--plan-timeout=20s")...)
			if err != nil || code != 2 && code != 3 {
				h.t.Errorf("the plan as %s: exit code %d, %v: %.2000s", form, code, err, stdout)
				return
			}
			printabletest.CheckEscaped(h.t, "the plan as "+form, string(stdout))
			printabletest.Check(h.t, "the log of the plan as "+form, log)
			if !strings.Contains(string(stdout), "hostile-") {
				h.t.Errorf("the plan as %s has no object that is hostile: %.2000s", form, stdout)
			}
			if form == "json" && !json.Valid(stdout) {
				h.t.Errorf("the plan is no JSON: %.2000s", stdout)
			}
		})
	}
	both.Wait()
}

// readsStatuses reads the texts of the statuses of all objects, but for those that the test wrote itself.
func (h *hostility) readsStatuses() {
	h.t.Helper()
	places := map[string]int{}
	for _, key := range h.keys {
		g := h.in[key]
		u, err := h.largest.in(g.resource, g.namespace()).Get(h.t.Context(), key[strings.LastIndexByte(key, '/')+1:], metav1.GetOptions{})
		if err != nil {
			continue // it is gone
		}
		own := slices.Collect(maps.Values(h.statuses[key]))
		shown := map[string]string{}
		shownTexts(u.Object["status"], "status", shown)
		for at, text := range shown {
			if slices.Contains(own, text) {
				continue
			}
			printabletest.Check(h.t, at+" of "+key, text)
			places[strings.Split(at, ".")[1]]++
		}
	}
	h.t.Logf("texts of statuses: %v", places)
	for _, place := range []string{"conditions", "parents", "listeners"} {
		if places[place] == 0 {
			h.t.Errorf("no object has texts in status.%s: %v", place, places)
		}
	}
}

// readsEvents reads the Events of all namespaces: those of kinds without one are in another.
func (h *hostility) readsEvents() {
	h.t.Helper()
	events, err := h.core.CoreV1().Events("").List(h.t.Context(), metav1.ListOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	of := map[bool]int{}
	for _, e := range events.Items {
		printabletest.CheckLine(h.t, "an Event "+e.Reason, e.Message)
		of[e.InvolvedObject.Namespace == ""]++
	}
	if of[true] == 0 || of[false] == 0 {
		h.t.Errorf("Events about objects in no namespace, and in one: %v", of)
	}
}

// shownTexts adds the texts of a status that people read, by their place: of conditions wherever they stand, and errors.
func shownTexts(value any, place string, to map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, part := range value {
			text, is := part.(string)
			if is && (key == "message" || key == "reason" || key == "error") {
				to[place+"."+key] = text
			}
			shownTexts(part, place+"."+key, to)
		}
	case []any:
		for i, part := range value {
			shownTexts(part, fmt.Sprintf("%s.%d", place, i), to)
		}
	}
}

// Conditions of routes, listeners and policies stand in lists, and errors of CiliumNodes in maps.
func TestShownTexts(t *testing.T) {
	condition := list{set{"type": "a", "reason": "r", "message": "m"}}
	got := map[string]string{}
	shownTexts(set{
		"conditions": condition, "listeners": list{set{"name": "b", "conditions": condition}}, "parents": list{set{}, set{"conditions": condition}},
		"ancestors": list{set{"conditions": condition}}, "ipam": set{"operator-status": set{"error": "e"}, "used": set{"10.0.0.1": set{"owner": "x"}}},
	}, "status", got)
	want := map[string]string{"status.ipam.operator-status.error": "e"}
	for _, at := range []string{"status", "status.listeners.0", "status.parents.1", "status.ancestors.0"} {
		want[at+".conditions.0.reason"], want[at+".conditions.0.message"] = "r", "m"
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// putHostile puts keys and values into etcd, as an agent may.
func (l *largest) putHostile() {
	for _, prefix := range []string{kvstore.IdentitiesPrefix, kvstore.IdentityValuesPrefix, kvstore.IdentityLocksPrefix, kvstore.NodesPrefix, kvstore.ServicesPrefix, kvstore.ServiceExportsPrefix} {
		for _, cluster := range []string{"default", "peer", hostile} {
			l.etcd.Put(kvstore.Key(prefix, cluster, hostile), hostile, 0)
			l.etcd.Put(kvstore.Key(prefix, cluster)+"/300", hostile, 0)
		}
	}
	l.etcd.Put(kvstore.Key(kvstore.IdentitiesPrefix, "300"), hostile, 0)
	l.etcd.Put(kvstore.Key(kvstore.ClusterConfigPrefix, hostile), hostile, 0)
	l.etcd.Put(kvstore.Key(kvstore.ClusterConfigPrefix, "peer"), `{"id":2,"a":"`+"b\u202ec\u009b31m"+`"}`, 0)
}

// hostile is what an attacker writes.
const hostile = printabletest.Hostile

// readAnnotations are annotations that duties read, by kind. The API server accepts any value.
var readAnnotations = map[string][]string{
	"Service": {
		globalService, "service.cilium.io/shared", "service.cilium.io/affinity", "service.cilium.io/lb-l7", "service.cilium.io/lb-l7-algorithm", "lbipam.cilium.io/ips",
		"lbipam.cilium.io/sharing-key", "lbipam.cilium.io/sharing-cross-namespace", "lbipam.cilium.io/unknown", "io.cilium.nodeipam/match-node-labels",
	},
	"Namespace":         {globalnamespace.Annotation, "cilium.io/ces-namespace"},
	"CiliumNode":        {"ipam.cilium.io/ignore"},
	"CiliumCIDRGroup":   {"cilium.io/external-group"},
	"Gateway":           {"service.cilium.io/src-ranges-policy", "service.cilium.io/weight"},
	"GatewayClass":      {"service.cilium.io/lb-algorithm"},
	"EndpointSlice":     {"gateway.cilium.io/backend-service", "gateway.cilium.io/backend-port"},
	"CiliumEnvoyConfig": {"cec.cilium.io/use-original-source-address"},
	"Ingress":           {modeOfIngress, passesTLS, "ingress.cilium.io/host-listener-port", "ingress.cilium.io/service-type", "ingress.cilium.io/force-https"},
}

// servedBy are fields without which an object is none of the operator's.
var servedBy = []string{"parentRefs", "parentRef", "gatewayClassName", "ingressClassName"}

// createHostile makes an object of a kind in which as many texts and keys are hostile as the API server accepts, and returns how many these are.
// Half of the annotations that are read of the kind are there besides. One that is served keeps what it is served by.
func (l *largest) createHostile(g giant, name string, random *rand.Rand, isServed bool) (accepted int) {
	l.t.Helper()
	object := runtime.DeepCopyJSON(normal(g.build(min(g.n, 120))).(map[string]any))
	var places []place
	collect(object, nil, map[string]bool{}, &places)
	try := func(candidate map[string]any, options metav1.CreateOptions) bool {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(candidate)}
		u.SetGroupVersionKind(g.resource.GroupVersion().WithKind(g.kind))
		u.SetName(name)
		_, err := l.in(g.resource, g.namespace()).Create(l.t.Context(), u, options)
		return err == nil
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for _, p := range places {
		if isServed && slices.ContainsFunc(servedBy, func(field string) bool { return slices.Contains(p.path, field) }) {
			continue
		}
		for _, text := range hostileTexts(random) {
			candidate := p.put(object, text).(map[string]any)
			if try(candidate, dry) {
				object = candidate
				accepted++
				break
			}
		}
	}
	for _, key := range readAnnotations[g.kind] {
		u := unstructured.Unstructured{Object: object}
		all := u.GetAnnotations()
		if _, has := all[key]; has || random.IntN(2) == 0 {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[key] = hostileTexts(random)[0]
		u.SetAnnotations(all)
		accepted++
	}
	if accepted == 0 || !try(object, metav1.CreateOptions{}) {
		return 0
	}
	return accepted
}

// hostileTexts are those that are tried at a place: two, and in the long form all.
func hostileTexts(random *rand.Rand) []string {
	all := slices.Clone(printabletest.Texts)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if !seedtest.Soak() {
		return []string{all[0], "/" + all[1]}
	}
	for _, text := range all {
		all = append(all, "/"+text)
	}
	return all
}

// normal is a value with the types of JSON alone.
func normal(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, part := range value {
			value[key] = normal(part)
		}
		return value
	case []any:
		for i, part := range value {
			value[i] = normal(part)
		}
		return value
	case []string:
		all := make([]any, len(value))
		for i, part := range value {
			all[i] = part
		}
		return all
	case map[string]string:
		all := make(map[string]any, len(value))
		for key, part := range value {
			all[key] = part
		}
		return all
	case int:
		return int64(value)
	}
	return value
}

// mostTexts is how many texts and keys of an object are tried.
func mostTexts() int {
	if seedtest.Soak() {
		return 250
	}
	return 25
}

// place is where a text of an object stands, or a key of a map.
type place struct {
	path  []string
	isKey bool
}

// freeMaps are fields whose keys the author of an object chooses. Those of the first entry stand for all; of annotations each has a meaning of its own.
var freeMaps = []string{"labels", "data", "stringData", "matchLabels", "security-labels", "exportedLabels", "exportedAnnotations"}

// collect adds the places of the texts of a value, and of the keys of its maps: of the items of a list the first one that has such a text.
func collect(value any, path []string, seen map[string]bool, to *[]place) {
	if len(*to) >= mostTexts() {
		return
	}
	switch value := value.(type) {
	case string:
		if at := index.ReplaceAllString(strings.Join(path, "."), "*"); !seen[at] {
			seen[at] = true
			*to = append(*to, place{path: slices.Clone(path)})
		}
	case map[string]any:
		keys := slices.Sorted(maps.Keys(value))
		isFree := len(path) > 0 && slices.Contains(freeMaps, path[len(path)-1])
		if isFree && len(keys) > 0 {
			keys = keys[:1]
		}
		for _, key := range keys {
			collect(value[key], append(path, key), seen, to)
			if at := strings.Join(path, ".") + " "; isFree && !seen[at] {
				seen[at] = true
				*to = append(*to, place{slices.Clone(append(path, key)), true})
			}
		}
	case []any:
		for i := range value {
			collect(value[i], append(path, fmt.Sprint(i)), seen, to)
		}
	}
}

// index is the place of an item of a list.
var index = regexp.MustCompile(`\b\d+\b`)

// put is a copy of a value with another text at the place.
func (p place) put(value any, text string) any {
	if len(p.path) == 0 {
		return text
	}
	rest := place{p.path[1:], p.isKey}
	switch value := runtime.DeepCopyJSONValue(value).(type) {
	case map[string]any:
		if p.isKey && len(p.path) == 1 {
			value[text] = value[p.path[0]]
			delete(value, p.path[0])
			return value
		}
		value[p.path[0]] = rest.put(value[p.path[0]], text)
		return value
	case []any:
		var i int
		_, _ = fmt.Sscan(p.path[0], &i)
		value[i] = rest.put(value[i], text)
		return value
	}
	panic("no such path")
}

// Of a map whose keys are free, the first entry is tried, its value and then its key; other fields are tried as well.
func TestPlacesOfTexts(t *testing.T) {
	object := set{"metadata": set{"labels": set{"a": "1", "b": "2"}, "annotations": set{"c": "3", "d": "4"}}, "spec": set{"hosts": list{"e", "f"}}}
	var places []place
	collect(object, nil, map[string]bool{}, &places)
	var got any = object
	for i, p := range places {
		got = p.put(got, fmt.Sprint("x", i))
	}
	want := set{"metadata": set{"labels": set{"x3": "x2", "b": "2"}, "annotations": set{"c": "x0", "d": "x1"}}, "spec": set{"hosts": list{"x4", "f"}}}
	if !reflect.DeepEqual(got, any(want)) {
		t.Errorf("%v, want %v", got, want)
	}
}
