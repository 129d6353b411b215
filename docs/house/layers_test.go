// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"path"
	"slices"
	"strings"
	"testing"
)

func isUnder(importPath, tree string) bool { return strings.HasPrefix(importPath+"/", tree+"/") }

// TestImports holds the layers apart.
func TestImports(t *testing.T) {
	own := func(folder string) string { return module + "/" + folder }
	for _, rule := range []struct {
		folder string
		never  []string
		reason string
	}{
		{"runtime", []string{"k8s.io", "sigs.k8s.io", "go.etcd.io", own("resources"), own("cells"), own("cmd")},
			"the runtime knows neither Kubernetes nor etcd nor what is built on it; move the code, or ask for an interface"},
		{"resources", []string{own("cells"), own("cmd")}, "what duties share knows no duty; move what they need down, or turn it into an interface"},
		{"resources/domain", []string{"k8s.io/client-go", "go.etcd.io/etcd/client", own("resources/k8s"), own("resources/kvstore"), own("resources/stream")},
			"domain logic is pure; take values, and leave clients to the caller"},
		{"cells", []string{own("cmd")}, "binaries are made of cells, not cells of binaries"},
		{"cells/gateway/internal", []string{"k8s.io/client-go", own("resources/k8s"), own("resources/kvstore"), own("resources/reconcile"), own("resources/envoy"), own("runtime")},
			"what decides does no I/O and knows no controller; ask a lookup, and leave clients and stores to the cell"},
	} {
		t.Run(rule.folder, func(t *testing.T) {
			for _, p := range allPackages(t) {
				for _, i := range p.Imports {
					if p.below(rule.folder) && slices.ContainsFunc(rule.never, func(tree string) bool { return isUnder(i, tree) }) {
						t.Errorf("%s imports %s\n\t%s", p.at(), i, rule.reason)
					}
				}
			}
		})
	}
	t.Run("a cell never imports another cell", func(t *testing.T) {
		cellFolders := map[string]bool{}
		for _, p := range allPackages(t) {
			cellFolders[p.ImportPath] = p.isCell()
		}
		for _, p := range allPackages(t) {
			for _, i := range p.Imports {
				if p.below("cells") && p.at() != "cells" && cellFolders[i] {
					t.Errorf("%s imports the cell %s\n\twhat two cells need is a type in resources, or an interface that one provides and the other asks for", p.at(), i)
				}
			}
		}
	})
}

// TestDependencies forbids what must not get into a program, however indirectly.
func TestDependencies(t *testing.T) {
	isOperator := func(p pkg) bool { return p.Name == "main" && strings.HasPrefix(p.at(), "cmd/operator") }
	except := func(names ...string) func(pkg) bool {
		return func(p pkg) bool { return isOperator(p) && !slices.Contains(names, path.Base(p.at())) }
	}
	everywhere := func(pkg) bool { return true }
	for _, rule := range []struct {
		never  string
		where  func(pkg) bool
		reason string
	}{
		{"github.com/cilium", everywhere, "Skep is no derivative of Cilium; facts come from documents, and types are our own"},
		{"sigs.k8s.io/controller-runtime", everywhere, "its manager is a second framework beside ours"},
		{"go.uber.org/fx", everywhere, "it is a second framework beside ours; dig alone holds the graph"},
		{"k8s.io/kubernetes", everywhere, "it is for cmd/devcluster, which is a module of its own"},
		{"github.com/goccy/go-graphviz", everywhere, "its engine costs every process half a second at the start; cmd/graphdraw has it"},
		{"k8s.io/client-go/kubernetes", isOperator, "it links the types of all API groups in all versions; resources/builtin has clients for single types"},
		{"github.com/aws", except("operator", "operator-aws"), "only operators for AWS carry its SDK; import cells/ipam/aws from their list of cells alone"},
		{"github.com/Azure", except("operator", "operator-azure"), "only operators for Azure carry its SDK; import cells/ipam/azure from their list of cells alone"},
		{"github.com/alibabacloud-go", except("operator", "operator-alibabacloud"), "only operators for Alibaba Cloud carry its SDK; import cells/ipam/alibabacloud from their list of cells alone"},
		{"github.com/aliyun", except("operator", "operator-alibabacloud"), "only operators for Alibaba Cloud carry its SDK; import cells/ipam/alibabacloud from their list of cells alone"},
	} {
		t.Run(rule.never, func(t *testing.T) {
			for _, p := range allPackages(t) {
				for _, d := range p.Deps {
					if rule.where(p) && isUnder(d, rule.never) {
						t.Errorf("%s depends on %s (go mod why -m %s)\n\t%s", p.at(), d, rule.never, rule.reason)
					}
				}
			}
		})
	}
	t.Run("cloud SDKs stay in their cells", func(t *testing.T) {
		owners := map[string]string{
			"github.com/aws": "cells/ipam/aws", "github.com/Azure": "cells/ipam/azure",
			"github.com/alibabacloud-go": "cells/ipam/alibabacloud", "github.com/aliyun": "cells/ipam/alibabacloud",
		}
		for _, p := range allPackages(t) {
			for _, i := range p.Imports {
				for sdk, owner := range owners {
					if isUnder(i, sdk) && !p.below(owner) {
						t.Errorf("%s imports %s\n\tonly %s does", p.at(), i, owner)
					}
				}
			}
		}
	})
}
