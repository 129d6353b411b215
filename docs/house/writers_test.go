// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"go/ast"
	"go/parser"
	"slices"
	"strings"
	"testing"
)

// shared are functions of duties that change objects without the brake of objects that have one source, and why (K8S-25).
var shared = exceptions{
	"cells/bgp/status.go controller.writeConditions":                 "cluster-wide objects, which administrators write",
	"cells/bgp/write.go controller.update":                           "cluster-wide objects, which administrators write",
	"cells/crds/client.go crdClient.update":                          "definitions, which follow the release",
	"cells/endpointgc/api.go api.setOwnerUID":                        "it is written once for each pod",
	"cells/endpointslicesync/write.go controller.update":             "slices, of the endpoints of many nodes",
	"cells/gateway/class.go controller.reconcileClass":               "cluster-wide objects, which administrators write",
	"cells/gateway/gateway.go writeOf":                               "statuses of Gateways and ListenerSets count the routes of many namespaces",
	"cells/gateway/listenerset.go controller.reconcileListenerSet":   "statuses of ListenerSets count the routes of many namespaces",
	"cells/gateway/portslice.go controller.updatePort":               "slices, of the endpoints of many nodes",
	"cells/gateway/route.go editStatus":                              "those who call it say so",
	"cells/gateway/route.go modifyStatus":                            "those who call it say so",
	"cells/identity/restore.go controller.restore":                   "cluster-wide objects, which tenants do not write; those who undo it are braked by K8S-9",
	"cells/identitygc/crd/marks.go controller.writeMark":             "a mark is put after an interval without use, and taken off once",
	"cells/ingress/shared.go controller.reconcileShared":             "the configuration of all Ingresses",
	"cells/ipam/clusterpool/write.go controller.modify":              "CiliumNodes, which agents write",
	"cells/ipam/multipool/migrate.go migrator.convert":               "CiliumNodes, which agents write",
	"cells/ipam/multipool/write.go controller.modify":                "CiliumNodes, which agents write",
	"cells/lbipam/write.go controller.modify":                        "Services have one source, which their caller says, and pools have many",
	"cells/lbipam/write.go controller.patch":                         "Services have one source, which their caller says, and pools have many",
	"cells/mcsapi/slices.go controller.updateCopy":                   "slices, of the endpoints of many nodes",
	"cells/nodeipam/controller.go controller.write":                  "statuses of Services follow all nodes",
	"cells/nodes/taints/controller.go controller.patchTaints":        "Nodes, which follow their agents",
	"cells/nodes/taints/controller.go controller.reconcileCondition": "Nodes, which follow their agents",
}

// TestWritersAreBraked wants each duty that changes objects to say how many objects its own follow: one that follows one object of a tenant, which may flip,
// is written less and less often (K8S-25; K9 of the contract's tenants.md).
func TestWritersAreBraked(t *testing.T) {
	unbraked := map[string]string{}
	for _, s := range allSources(t) {
		if !s.isGo() || s.isTest() || s.isGenerated() || !strings.HasPrefix(s.path, "cells/") {
			continue
		}
		f, err := parser.ParseFile(fileSet, s.path, s.text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if what := changes(d); what != "" {
				unbraked[s.path+" "+declName(d)] = what
			}
		}
	}
	shared.check(t, "pass k8s.WithOneSource(ctx), or list here of how many objects it is", unbraked)
}

// changes is the call by which a declaration changes an object, "" if there is none, or it says that the object has one source.
func changes(d ast.Decl) (what string) {
	braked := false
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch name := nameOfCall(call); {
		case name == "k8s.WithOneSource":
			braked = true
		case isChange(name, call):
			what = name
		}
		return true
	})
	if braked {
		return ""
	}
	return what
}

// isChange reports whether a call changes an object that exists.
func isChange(name string, call *ast.CallExpr) bool {
	_, method, _ := strings.Cut(name, ".")
	switch {
	case slices.Contains([]string{"modifyStatus", "editStatus", "k8s.Update", "envoyres.WriteObject"}, name):
		return true
	case method == "Modify", method == "Patch":
		return strings.HasSuffix(strings.ToLower(strings.TrimSuffix(name, "."+method)), "client")
	case method == "Write":
		return slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
			of, ok := arg.(*ast.SelectorExpr)
			return ok && of.Sel.Name == "Client"
		})
	}
	return false
}

// nameOfCall is what a call calls: a function, or a method of the last field of what has it.
func nameOfCall(call *ast.CallExpr) string {
	fun := call.Fun
	if of, ok := fun.(*ast.IndexExpr); ok {
		fun = of.X
	}
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		switch x := fun.X.(type) {
		case *ast.Ident:
			return x.Name + "." + fun.Sel.Name
		case *ast.SelectorExpr:
			return x.Sel.Name + "." + fun.Sel.Name
		}
		return "." + fun.Sel.Name
	}
	return ""
}
