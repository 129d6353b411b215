// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// facts is what rules match on, read from a request as the API server reads it.
type facts struct {
	verb, group, version, resource, subresource, namespace, name string

	isResource      bool
	path, userAgent string
}

var parser = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

func factsOf(r *http.Request) facts {
	// What cannot be parsed is for the server to refuse; the info holds what was
	// understood.
	info, _ := parser.NewRequestInfo(r)
	return facts{
		verb: info.Verb, group: info.APIGroup, version: info.APIVersion,
		resource: info.Resource, subresource: info.Subresource,
		namespace: info.Namespace, name: info.Name, isResource: info.IsResourceRequest,
		path: r.URL.Path, userAgent: r.UserAgent(),
	}
}

// groupName is the group as rules spell it.
func (f facts) groupName() string {
	if f.isResource && f.group == "" {
		return "core"
	}
	return f.group
}

func (f facts) matches(m control.Match) bool {
	return anyOf(m.Verbs, f.verb) &&
		anyOf(m.Groups, f.groupName()) &&
		anyOf(m.Namespaces, f.namespace) &&
		anyOf(m.Names, f.name) &&
		f.matchesResource(m.Resources) &&
		f.matchesPath(m.PathPrefixes) &&
		strings.Contains(f.userAgent, m.UserAgent)
}

func anyOf(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

func (f facts) matchesResource(list []string) bool {
	if len(list) == 0 {
		return true
	}
	if f.subresource == "" {
		return f.isResource && slices.Contains(list, f.resource)
	}
	return slices.Contains(list, f.resource+"/"+f.subresource) || slices.Contains(list, "*/"+f.subresource)
}

func (f facts) matchesPath(prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool {
		return strings.HasPrefix(f.path, prefix)
	})
}

var knownVerbs = []string{
	"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
	"post", "put", "head", "options", // of paths that are no resources
}

// validateMatch refuses what could never match.
func validateMatch(m control.Match) error {
	for _, verb := range m.Verbs {
		if !slices.Contains(knownVerbs, verb) {
			return fmt.Errorf("unknown verb %q: use one of %s", verb, strings.Join(knownVerbs, ", "))
		}
	}
	if slices.Contains(m.Groups, "") {
		return fmt.Errorf(`empty group: the core group is spelled "core"`)
	}
	for _, prefix := range m.PathPrefixes {
		if !strings.HasPrefix(prefix, "/") {
			return fmt.Errorf("path prefix %q does not start with /", prefix)
		}
	}
	return nil
}
