// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/referencetest"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/hive"
)

// Invariant 8: under the chart of each release that is served, with each of its sets of values, no duty needs what the roles of
// the chart do not allow. What it can do without is declared as optional.
func TestInvariant8Roles(t *testing.T) {
	for _, release := range []string{"1.17", "1.18", "1.19", "1.20"} {
		files, err := filepath.Glob(filepath.Join(referencetest.Folder(t, "chart-"+release), "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("there are no charts of %s: %v", release, err)
		}
		for _, file := range files {
			values := strings.TrimSuffix(filepath.Base(file), ".yaml")
			t.Run(release+" "+values, func(t *testing.T) {
				c := readChartOf(t, release, values)
				allowed, needed := c.rules(), k8s.LeastRole("needed", c.graph(), false).Rules
				if len(needed) < 10 {
					t.Errorf("it needs %d rules alone: are its options read?", len(needed))
				}
				for _, rule := range needed {
					for _, lack := range lackedOf(rule, allowed) {
						t.Errorf("it needs to %s", lack)
					}
				}
			})
		}
	}
}

// graph is that of an operator with the chart's options.
func (c *chart) graph() *graph.Graph {
	c.t.Helper()
	c.resolveResources()
	env, places := c.environment(), c.mount("127.0.0.1:1")
	h := hive.New("operator", withClouds, hive.Environ(func(name string) (string, bool) {
		value, ok := env[name]
		return places.Replace(value), ok
	}))
	var args []string
	for _, arg := range append(c.container().Command[1:], c.container().Args...) {
		args = append(args, places.Replace(expand(arg, env)))
	}
	flags := h.FlagSet()
	if err := errors.Join(flags.Parse(args), h.Configure(flags), h.Select()); err != nil {
		c.t.Fatal(err)
	}
	return h.Graph()
}

// rules are those of all roles of the chart, whatever their namespaces.
func (c *chart) rules() (all []rbacv1.PolicyRule) {
	c.t.Helper()
	for _, u := range c.objects {
		var role rbacv1.Role
		if k := u.GetKind(); k != "Role" && k != "ClusterRole" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, role.Rules...)
	}
	return all
}

// lackedOf is what a rule asks for that no other one allows.
func lackedOf(want rbacv1.PolicyRule, allowed []rbacv1.PolicyRule) (lacked []string) {
	for _, group := range want.APIGroups {
		for _, resource := range want.Resources {
			for _, verb := range want.Verbs {
				allows := func(has rbacv1.PolicyRule) bool {
					return includes(has.APIGroups, group) && includes(has.Resources, resource) && includes(has.Verbs, verb) &&
						(len(has.ResourceNames) == 0 || len(want.ResourceNames) > 0 && !slices.ContainsFunc(want.ResourceNames, func(name string) bool {
							return !slices.Contains(has.ResourceNames, name)
						}))
				}
				if !slices.ContainsFunc(allowed, allows) {
					lacked = append(lacked, strings.TrimSpace(strings.Join([]string{verb, resource + "." + group, strings.Join(want.ResourceNames, ",")}, " ")))
				}
			}
		}
	}
	return lacked
}

func includes(list []string, s string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, s)
}
