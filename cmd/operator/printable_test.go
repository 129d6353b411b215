// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// K6 of the contract's tenants.md: whatever stands in the fields of objects, nothing that the operator shows (log, status, health, explain,
// writes, metrics, Events, statuses of objects) controls a terminal, turns the direction of writing, or looks like a line of its own. Each text of an
// object of each kind is one that does, and each key of a map, as far as the API server accepts that. The seed chooses which of several such texts it is.
func TestTextsOfOthersAreEscaped(t *testing.T) {
	random := rand.New(rand.NewPCG(seedtest.Seed(t), 0))
	l := newLargest(t)
	l.putHostile()
	l.launch()
	objects, texts := 0, 0
	for i, g := range giants {
		if g.global && !byAgents[g.kind] {
			continue // tenants do not write it
		}
		name := fmt.Sprintf("hostile-%d", i)
		for _, b := range g.beside {
			l.apply(b)
		}
		n := l.createHostile(g, name, random, i%2 == 0)
		if n == 0 {
			t.Logf("%s: the API server accepts no such text", g)
			continue
		}
		objects, texts = objects+1, texts+n
		key := g.kind + "/" + attacker + "/" + name
		if g.global {
			key = g.kind + "/" + name
		}
		printabletest.Check(t, "explain "+key, l.o.ask("explain", key))
	}
	t.Logf("%d texts of %d objects were accepted", texts, objects)
	if objects < 40 || texts < 120 {
		t.Errorf("only %d texts of %d objects were accepted: the test shows nothing", texts, objects)
	}
	l.servesOthers("hostile texts", servedWithin)
	l.rests("hostile texts", 3*mostWork)
	l.alive()
	for _, command := range []string{"status -v", "status health", "writes", "metrics list", "shell health", "explain"} {
		fields := strings.Fields(command)
		if command == "explain" {
			fields = append(fields, "Service/"+attacker+"/"+hostile)
		}
		printabletest.Check(t, command, l.o.ask(fields...))
	}
	printabletest.Check(t, "the log", l.o.log.String())
	places := map[string]int{}
	for i, g := range giants {
		u, err := l.in(g.resource, g.namespace()).Get(t.Context(), fmt.Sprintf("hostile-%d", i), metav1.GetOptions{})
		if err != nil {
			continue // it was not accepted
		}
		shown := map[string]string{}
		shownTexts(u.Object["status"], "status", shown)
		for at, text := range shown {
			printabletest.Check(t, fmt.Sprintf("%s of %s/%s", at, g.kind, u.GetName()), text)
			places[strings.Split(at, ".")[1]]++
		}
	}
	t.Logf("texts of statuses: %v", places)
	for _, place := range []string{"conditions", "parents", "listeners"} {
		if places[place] == 0 {
			t.Errorf("no object has texts in status.%s: %v", place, places)
		}
	}
	for _, command := range []string{"shell db/dump", "metrics list -o json"} {
		if text := l.o.ask(strings.Fields(command)...); !json.Valid([]byte(text)) {
			t.Errorf("%s: %.300s", command, text)
		}
	}
	events, err := l.core.CoreV1().Events(attacker).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) == 0 {
		t.Fatalf("%d Events: %v", len(events.Items), err)
	}
	for _, e := range events.Items {
		printabletest.Check(t, "an Event "+e.Reason, e.Message)
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

// byAgents are the kinds without a namespace that agents write.
var byAgents = map[string]bool{"CiliumNode": true, "CiliumIdentity": true, "CiliumEndpointSlice": true}

// putHostile puts keys and values into etcd, as an agent may.
func (l *largest) putHostile() {
	for _, prefix := range []string{kvstore.IdentitiesPrefix, kvstore.IdentityValuesPrefix, kvstore.IdentityLocksPrefix, kvstore.NodesPrefix, kvstore.ServicesPrefix, kvstore.ServiceExportsPrefix} {
		for _, cluster := range []string{"default", hostile} {
			l.etcd.Put(kvstore.Key(prefix, cluster, hostile), hostile, 0)
			l.etcd.Put(kvstore.Key(prefix, cluster)+"/300", hostile, 0)
		}
	}
	l.etcd.Put(kvstore.Key(kvstore.IdentitiesPrefix, "300"), hostile, 0)
}

// hostile is what an attacker writes.
const hostile = printabletest.Hostile

// readAnnotations are annotations that duties read, by kind. The API server accepts any value.
var readAnnotations = map[string][]string{
	"Service": {
		globalService, "service.cilium.io/shared", "service.cilium.io/affinity", "service.cilium.io/lb-l7", "service.cilium.io/lb-l7-algorithm", "lbipam.cilium.io/ips",
		"lbipam.cilium.io/sharing-key", "lbipam.cilium.io/sharing-cross-namespace", "lbipam.cilium.io/unknown", "io.cilium.nodeipam/match-node-labels",
	},
	"Ingress": {modeOfIngress, passesTLS, "ingress.cilium.io/host-listener-port", "ingress.cilium.io/service-type", "ingress.cilium.io/force-https"},
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
