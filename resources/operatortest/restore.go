// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/restmapper"
)

// Restore creates objects of a namespace in their order, without their statuses, and without what the API server chooses. An owner
// whose uid reads "uid of KIND NAMESPACE/NAME" is the one that was created before. Objects of kinds that are not defined are left
// out.
func (e *Env) Restore(objects ...*unstructured.Unstructured) {
	e.T.Helper()
	groups, err := restmapper.GetAPIGroupResources(e.Core.Discovery())
	if err != nil {
		e.T.Fatal(err)
	}
	served, uids := restmapper.NewDiscoveryRESTMapper(groups), map[string]string{}
	for _, u := range objects {
		kind, err := served.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			e.T.Fatal(err)
		}
		removeChosen(u)
		setOwners(u, uids)
		created, err := e.Dynamic.Resource(kind.Resource).Namespace(u.GetNamespace()).Create(e.T.Context(), u, metav1.CreateOptions{})
		if err != nil {
			e.T.Fatal(err)
		}
		uids["uid of "+u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = string(created.GetUID())
	}
}

func setOwners(u *unstructured.Unstructured, uids map[string]string) {
	owners, _, _ := unstructured.NestedSlice(u.Object, "metadata", "ownerReferences")
	for _, owner := range owners {
		fields, _ := owner.(map[string]any)
		if uid, _ := fields["uid"].(string); strings.HasPrefix(uid, "uid of ") {
			fields["uid"] = uids[uid]
		}
	}
	if len(owners) > 0 {
		_ = unstructured.SetNestedSlice(u.Object, owners, "metadata", "ownerReferences")
	}
}

// removeChosen removes the addresses and ports of a Service, which another cluster may have given to another one.
func removeChosen(u *unstructured.Unstructured) {
	if u.GetKind() != "Service" {
		return
	}
	for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "healthCheckNodePort"} {
		unstructured.RemoveNestedField(u.Object, "spec", field)
	}
	ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
	for _, port := range ports {
		if fields, ok := port.(map[string]any); ok {
			delete(fields, "nodePort")
		}
	}
	_ = unstructured.SetNestedSlice(u.Object, ports, "spec", "ports")
}
