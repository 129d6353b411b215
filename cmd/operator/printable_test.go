// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// K6 of the contract's tenants.md: whatever stands in the fields of objects, nothing that the operator shows (log, status, health, explain,
// writes, metrics, Events) controls a terminal, turns the direction of writing, or looks like a line of its own. Each text of an object of each kind
// is one that does, as far as the API server accepts that.
func TestTextsOfOthersAreEscaped(t *testing.T) {
	l := newLargest(t)
	l.putHostile()
	l.launch()
	objects, texts, messages := 0, 0, 0
	for i, g := range giants {
		if g.global && !byAgents[g.kind] {
			continue // tenants do not write it
		}
		name := fmt.Sprintf("hostile-%d", i)
		for _, b := range g.beside {
			l.apply(b)
		}
		n := l.createHostile(g, name)
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
	if objects < 15 || texts < 40 {
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
	for i, g := range giants {
		u, err := l.in(g.resource, g.namespace()).Get(t.Context(), fmt.Sprintf("hostile-%d", i), metav1.GetOptions{})
		if err != nil {
			continue // it was not accepted
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			message, _, _ := unstructured.NestedString(c.(map[string]any), "message")
			printabletest.Check(t, fmt.Sprintf("a condition of %s/%s", g.kind, u.GetName()), message)
			messages++
		}
	}
	if messages < 5 {
		t.Errorf("only %d conditions: they show nothing", messages)
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

// createHostile makes an object of a kind in which as many texts are hostile as the API server accepts, and returns how many these are.
func (l *largest) createHostile(g giant, name string) (accepted int) {
	l.t.Helper()
	object := runtime.DeepCopyJSON(normal(g.build(min(g.n, 120))).(map[string]any))
	var paths [][]string
	collect(object, nil, map[string]bool{}, &paths)
	try := func(candidate map[string]any, options metav1.CreateOptions) bool {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(candidate)}
		u.SetGroupVersionKind(g.resource.GroupVersion().WithKind(g.kind))
		u.SetName(name)
		_, err := l.in(g.resource, g.namespace()).Create(l.t.Context(), u, options)
		return err == nil
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for _, path := range paths {
		for _, text := range []string{hostile, "/" + hostile} {
			candidate := replaceText(object, path, text).(map[string]any)
			if try(candidate, dry) {
				object = candidate
				accepted++
				break
			}
		}
	}
	if accepted == 0 || !try(object, metav1.CreateOptions{}) {
		return 0
	}
	return accepted
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

// mostTexts is how many texts of an object are tried.
const mostTexts = 25

// collect adds the places of the texts of a value: of the items of a list the first one that has such a text.
func collect(value any, path []string, seen map[string]bool, to *[][]string) {
	if len(*to) >= mostTexts {
		return
	}
	switch value := value.(type) {
	case string:
		if place := index.ReplaceAllString(strings.Join(path, "."), "*"); !seen[place] {
			seen[place] = true
			*to = append(*to, slices.Clone(path))
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			collect(value[key], append(path, key), seen, to)
		}
	case []any:
		for i := range value {
			collect(value[i], append(path, fmt.Sprint(i)), seen, to)
		}
	}
}

// index is the place of an item of a list.
var index = regexp.MustCompile(`\b\d+\b`)

// replaceText is a copy of a value with another text at a place.
func replaceText(value any, path []string, text string) any {
	if len(path) == 0 {
		return text
	}
	switch value := runtime.DeepCopyJSONValue(value).(type) {
	case map[string]any:
		value[path[0]] = replaceText(value[path[0]], path[1:], text)
		return value
	case []any:
		var i int
		_, _ = fmt.Sscan(path[0], &i)
		value[i] = replaceText(value[i], path[1:], text)
		return value
	}
	panic("no such path")
}
