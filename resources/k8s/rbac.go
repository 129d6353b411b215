// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
)

// Rules are the permissions that a module needs. They ride on the module as an
// annotation.
type Rules struct {
	Required []rbacv1.PolicyRule
	// Optional permissions are used where the role has them.
	Optional []rbacv1.PolicyRule
}

// RBAC says what a module must be allowed to do.
func RBAC(rules ...rbacv1.PolicyRule) cell.Cell {
	r := Rules{Required: rules}
	return cell.Set(cell.Annotate(r), cell.Check(cell.Made("k8s.RBAC", r.check)))
}

// OptionalRBAC says what a module does where it is allowed to, and does
// without where it is not.
func OptionalRBAC(rules ...rbacv1.PolicyRule) cell.Cell {
	r := Rules{Optional: rules}
	return cell.Set(cell.Annotate(r), cell.Check(cell.Made("k8s.OptionalRBAC", r.check)))
}

// Allow is a rule for a resource, or for a subresource such as nodes/status.
// Verbs have commas between.
func Allow(verbs string, resource schema.GroupResource) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}, Verbs: strings.Split(verbs, ","),
	}
}

// AllowNamed is a rule for single objects of a resource.
func AllowNamed(verbs string, resource schema.GroupResource, names ...string) rbacv1.PolicyRule {
	r := Allow(verbs, resource)
	r.ResourceNames = names
	return r
}

// AllowPath is a rule for paths that are no resources.
func AllowPath(verbs string, paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: paths, Verbs: strings.Split(verbs, ",")}
}

// rulesOf are the rules of a module.
func rulesOf(m graph.Module) Rules {
	var all Rules
	for _, a := range m.Annotations {
		if r, ok := a.(Rules); ok {
			all.Required = append(all.Required, r.Required...)
			all.Optional = append(all.Optional, r.Optional...)
		}
	}
	return all
}

// LeastRole is the smallest role for the enabled modules of a graph, optional
// permissions included if asked for. The same permission of several modules is
// there once, and rules are sorted, so that the same modules give the same
// role.
func LeastRole(name string, g *graph.Graph, optional bool) *rbacv1.ClusterRole {
	var rules []rbacv1.PolicyRule
	for _, m := range g.Modules {
		if m.Enabled {
			r := rulesOf(m)
			rules = append(rules, r.Required...)
			if optional {
				rules = append(rules, r.Optional...)
			}
		}
	}
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      compact(rules),
	}
}

// verbOrder is the order in which people write verbs.
var verbOrder = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// compact gathers verbs by what they are for, and then resources of a group
// that have the same verbs.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type target struct{ group, resource, names, path string }
	verbs := map[target]map[string]bool{}
	add := func(t target, vs []string) {
		if verbs[t] == nil {
			verbs[t] = map[string]bool{}
		}
		for _, v := range vs {
			verbs[t][v] = true
		}
	}
	for _, r := range rules {
		for _, p := range r.NonResourceURLs {
			add(target{path: p}, r.Verbs)
		}
		for _, g := range r.APIGroups {
			for _, res := range r.Resources {
				add(target{group: g, resource: res, names: strings.Join(slices.Sorted(slices.Values(r.ResourceNames)), " ")}, r.Verbs)
			}
		}
	}
	// A verb on all objects makes the same verb on single ones superfluous.
	for t, vs := range verbs {
		if t.names != "" {
			maps.DeleteFunc(vs, func(v string, _ bool) bool { return verbs[target{group: t.group, resource: t.resource}][v] })
		}
	}
	type shape struct{ group, names, verbs string }
	resources := map[shape][]string{}
	paths := map[string][]string{}
	for t, vs := range verbs {
		if len(vs) == 0 {
			continue
		}
		sorted := slices.SortedFunc(maps.Keys(vs), func(a, b string) int {
			return cmp.Compare(slices.Index(verbOrder, a), slices.Index(verbOrder, b))
		})
		joined := strings.Join(sorted, ",")
		if t.path != "" {
			paths[joined] = append(paths[joined], t.path)
		} else {
			s := shape{t.group, t.names, joined}
			resources[s] = append(resources[s], t.resource)
		}
	}
	var out []rbacv1.PolicyRule
	for s, rs := range resources {
		r := rbacv1.PolicyRule{APIGroups: []string{s.group}, Resources: slices.Sorted(slices.Values(rs)), Verbs: strings.Split(s.verbs, ",")}
		if s.names != "" {
			r.ResourceNames = strings.Fields(s.names)
		}
		out = append(out, r)
	}
	for vs, ps := range paths {
		out = append(out, rbacv1.PolicyRule{NonResourceURLs: slices.Sorted(slices.Values(ps)), Verbs: strings.Split(vs, ",")})
	}
	slices.SortFunc(out, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.NonResourceURLs, b.NonResourceURLs), slices.Compare(a.APIGroups, b.APIGroups),
			slices.Compare(a.Resources, b.Resources), slices.Compare(a.Verbs, b.Verbs), slices.Compare(a.ResourceNames, b.ResourceNames))
	})
	return out
}
