// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/hive"
)

// variants are options that together turn every cell on.
var variants = [][]string{
	nil,
	{"--skip-crd-creation", "--kvstore=etcd", "--cluster-name=one", "--cluster-id=1"},
	{"--kvstore=etcd", "--disable-endpoint-crd"},
	{"--kvstore=etcd", "--identity-allocation-mode=doublewrite-readcrd"},
	{"--identity-management-mode=operator", "--enable-policy-secrets-sync"},
	{"--enable-node-ipam"},
	{"--enable-ciliumnode-crd=false", "--ipam=delegated-plugin"},
	{"--ipam=eni"},
	{"--ipam=azure"},
	{"--ipam=alibabacloud"},
	{"--enable-bgp-control-plane"},
	{"--mesh-auth-mutual-enabled"},
	{"--enable-ztunnel", "--ztunnel-ca-type=spire"},
	{"--clustermesh-enable-endpoint-sync", "--clustermesh-config=/var/lib/cilium/clustermesh", "--clustermesh-enable-mcs-api", "--kvstore=etcd"},
	{"--enable-node-ipam", "--loadbalancer-l7=envoy", "--enable-ingress-controller", "--kube-proxy-replacement=true", "--ingress-hostnetwork-enabled"},
	{"--enable-gateway-api", "--kube-proxy-replacement=true", "--enable-policy-secrets-sync"},
	{"--identity-management-mode=operator", "--ipam=multi-pool"},
	{"--enable-cilium-endpoint-slice", "--identity-management-mode=operator"},
	{"--enable-cilium-endpoint-slice", "--identity-management-mode=operator", "--ces-controller-mode=slim", "--plan"},
}

// TestReference keeps the pages of docs/reference what the binary says of itself.
func TestReference(t *testing.T) {
	var hives []*hive.Hive
	for _, args := range variants {
		hives = append(hives, selected(t, args...))
	}
	checkVariants(t, hives)
	plain := hives[0]
	page(t, "cells", "Cells", cellsPage(plain.Graph()))
	page(t, "flags", "Options", flagsPage(plain.Graph()))
	page(t, "metrics", "Metrics", metricsPage(t, hives))
	page(t, "rbac", "Permissions", rbacPage(t, plain))
	generated(t, "versions.md", "releases", releasesTable())
	product := readSources(t, "cells", "resources", "runtime")
	page(t, "events", "Events", eventsPage(t, product))
	page(t, "health", "Health", healthPage(t, product, hives))
	page(t, "labels", "Labels of metrics", labelsPage(t, product, hives))
}

// selected is the operator under some options, not built.
func selected(t *testing.T, args ...string) *hive.Hive {
	t.Helper()
	h := hive.New("operator", everything, hive.MetricsNamespace("cilium_operator"),
		hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := errors.Join(flags.Parse(args), h.Configure(flags), h.Select()); err != nil {
		t.Fatal(err)
	}
	return h
}

func checkVariants(t *testing.T, hives []*hive.Hive) {
	t.Helper()
	on := map[string]bool{}
	for _, h := range hives {
		for _, m := range h.Graph().Modules {
			on[m.ID] = on[m.ID] || m.Enabled
		}
	}
	for _, id := range slices.Sorted(maps.Keys(on)) {
		if !on[id] {
			t.Errorf("no variant turns %s on: add its options to the list, so that its metrics are in the reference", id)
		}
	}
}

// page compares a page of the reference with what it should be, or writes it.
func page(t *testing.T, name, title, text string) {
	t.Helper()
	path := "reference/" + name + ".md"
	got, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	const origin = "<!-- Written by make generate from what the operator says of itself. Do not edit. -->\n\n"
	settle(t, path, string(got), "# "+title+"\n\n"+origin+text)
}

// releasesTable is what depends on the release of Cilium, as Markdown.
func releasesTable() string {
	var b strings.Builder
	b.WriteString("| What depends on the release |")
	for _, r := range release.All() {
		fmt.Fprintf(&b, " %s |", r)
	}
	b.WriteString(" Rule |\n|" + strings.Repeat("---|", len(release.All())+2) + "\n")
	for _, f := range release.Facts() {
		var answers []string
		for _, a := range f.Answers {
			answers = append(answers, strings.ReplaceAll(a, "|", `\|`))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.Text, strings.Join(answers, " | "), f.Source)
	}
	return b.String()
}

func cellsPage(g *graph.Graph) string {
	var b strings.Builder
	b.WriteString("What `operator cells` lists, in the order of declaration. A cell's id is also the field `subsys`\n" +
		"of its log lines, the label `module` of its metrics and the beginning of its health path.\n\n")
	b.WriteString("| Cell | What it does | Lives | On when | Options |\n|---|---|---|---|---|\n")
	for _, m := range g.Modules {
		if m.ID != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.ID, m.Title, lives(m), conditions(m), optionCount(m))
		}
	}
	return b.String()
}

func optionCount(m graph.Module) string {
	n := 0
	for _, o := range m.Options {
		if !o.Ignored {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("[%d](flags.md#%s)", n, anchor(m.ID))
}

// anchor is how Markdown viewers name the heading of a cell.
func anchor(id string) string { return strings.ReplaceAll(id, ".", "") }

func flagsPage(g *graph.Graph) string {
	var b strings.Builder
	b.WriteString("Every option is a flag, an environment variable (`CILIUM_` and the name in upper case with `_` for `-`)\n" +
		"and a key of the config file or directory; see [configuration](../configuration.md).\n")
	accepted := 0
	for _, m := range g.Modules {
		options := slices.DeleteFunc(slices.Clone(m.Options), func(o graph.Option) bool { return o.Ignored })
		accepted += len(m.Options) - len(options)
		if len(options) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| Option | Type | Default | Meaning |\n|---|---|---|---|\n", m.ID, m.Title)
		for _, o := range options {
			fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", o.Name, o.Type, code(o.Default), inCell(o.Usage))
		}
	}
	fmt.Fprintf(&b, "\nBeside these, %d options of duties that are not built are accepted; `operator cells -v` names them.\n", accepted)
	return b.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + inCell(text) + "`"
}

// inCell is text that may stand in a cell of a table.
func inCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func metricsPage(t *testing.T, hives []*hive.Hive) string {
	t.Helper()
	all := declaredMetrics(t, hives)
	var b strings.Builder
	b.WriteString("What `operator metrics describe` lists, for all cells. `--enable-metrics` serves them; an operator\n" +
		"that serves them adds those of the process and of the Go runtime.\n\n")
	b.WriteString("| Metric | Type | Labels | Cell | Meaning |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Module, inCell(m.Help))
	}
	return b.String()
}

func rbacPage(t *testing.T, h *hive.Hive) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("What each cell must be allowed to do, and what it does if it is allowed to. Rules of cells that are\n" +
		"off are not needed: `operator rbac` prints the least ClusterRole for your options.\n\n")
	b.WriteString("| Cell | Permission | On | |\n|---|---|---|---|\n")
	h.Annotations(func(module string, value any) {
		if rules, ok := value.(k8s.Rules); ok {
			permissions(&b, module, rules.Required, "")
			permissions(&b, module, rules.Optional, "if allowed")
		}
	})
	role, err := yaml.Marshal(k8s.LeastRole("cilium-operator", h.Graph(), true))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "\n## The role for the default options\n\n```yaml\n%s```\n", role)
	return b.String()
}

func permissions(b *strings.Builder, module string, rules []rbacv1.PolicyRule, remark string) {
	for _, r := range rules {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", module, strings.Join(r.Verbs, ", "), objects(r), remark)
	}
}

// objects are what a rule is about, as kubectl writes resources.
func objects(r rbacv1.PolicyRule) string {
	if len(r.NonResourceURLs) > 0 {
		return "`" + strings.Join(r.NonResourceURLs, "`, `") + "`"
	}
	var names []string
	for _, resource := range r.Resources {
		for _, group := range r.APIGroups {
			names = append(names, "`"+strings.TrimSuffix(resource+"."+group, ".")+"`")
		}
	}
	text := strings.Join(names, ", ")
	if len(r.ResourceNames) > 0 {
		text += fmt.Sprintf(", %d by name", len(r.ResourceNames))
	}
	return text
}
