// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import "strings"

const (
	namespaceKey       = "io.kubernetes.pod.namespace"
	namespaceLabelsKey = "io.cilium.k8s.namespace.labels"
	initKey            = "reserved:init"
)

// rewriteSelectors makes the selectors of a rule as agents read them: keys have a source, and those of a policy of a namespace
// select its pods. Selectors of nodes have no namespace.
func rewriteSelectors(rule map[string]any, namespace string) {
	subject, _ := rule["endpointSelector"].(map[string]any)
	addSources(subject)
	nodes, _ := rule["nodeSelector"].(map[string]any)
	addSources(nodes)
	if names(subject, initKey) { // endpoints without labels are in no namespace yet
		namespace = ""
	}
	if subject != nil && namespace != "" {
		setNamespace(subject, namespace)
	}
	entriesOf(rule, func(_ direction, entry map[string]any) {
		for _, list := range []string{"fromNodes", "toNodes"} {
			eachSelector(entry[list], addSources)
		}
		for _, list := range []string{"fromEndpoints", "fromRequires", "toEndpoints", "toRequires"} {
			eachSelector(entry[list], func(peer map[string]any) {
				addSources(peer)
				if namespace != "" && !names(peer, namespaceKey) && !names(peer, namespaceLabelsKey) {
					setNamespace(peer, namespace)
				}
			})
		}
	})
}

func eachSelector(list any, f func(map[string]any)) {
	selectors, _ := list.([]any)
	for _, s := range selectors {
		if selector, ok := s.(map[string]any); ok {
			f(selector)
		}
	}
}

// addSources prefixes keys without a source.
func addSources(selector map[string]any) {
	labels, _ := selector["matchLabels"].(map[string]any)
	for key, value := range labels {
		if withSource(key) != key {
			delete(labels, key)
			if _, there := labels[withSource(key)]; !there {
				labels[withSource(key)] = value
			}
		}
	}
	for _, e := range expressions(selector) {
		if key, ok := e["key"].(string); ok {
			e["key"] = withSource(key)
		}
	}
}

func withSource(key string) string {
	if strings.Contains(key, ":") {
		return key
	}
	return "any:" + key
}

func expressions(selector map[string]any) (all []map[string]any) {
	list, _ := selector["matchExpressions"].([]any)
	for _, e := range list {
		if expression, ok := e.(map[string]any); ok {
			all = append(all, expression)
		}
	}
	return all
}

// names reports whether a selector has a key, or one that begins with it and a dot, of any source.
func names(selector map[string]any, want string) bool {
	labels, _ := selector["matchLabels"].(map[string]any)
	for key := range labels {
		if isKey(key, want) {
			return true
		}
	}
	for _, e := range expressions(selector) {
		if key, _ := e["key"].(string); isKey(key, want) {
			return true
		}
	}
	return false
}

func isKey(key, want string) bool {
	if !strings.Contains(want, ":") {
		_, key, _ = strings.Cut(withSource(key), ":")
	}
	return key == want || strings.HasPrefix(key, want+".")
}

func setNamespace(selector map[string]any, namespace string) {
	labels, ok := selector["matchLabels"].(map[string]any)
	if !ok {
		labels = map[string]any{}
		selector["matchLabels"] = labels
	}
	labels["k8s:"+namespaceKey] = namespace
}
