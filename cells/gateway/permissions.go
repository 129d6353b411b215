// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

func statusOf(of schema.GroupVersionResource) schema.GroupResource {
	return schema.GroupResource{Group: of.Group, Resource: of.Resource + "/status"}
}

// statusRBAC are the permissions to write the status of objects.
func statusRBAC(all ...schema.GroupVersionResource) cell.Cell {
	var cells []cell.Cell
	for _, of := range all {
		cells = append(cells, k8s.RBAC(k8s.Allow("get", of.GroupResource()), k8s.Allow("update", statusOf(of))))
	}
	return cell.Set(cells...)
}

// optionalStatusRBAC are the same where the role has them.
func optionalStatusRBAC(all ...schema.GroupVersionResource) cell.Cell {
	var cells []cell.Cell
	for _, of := range all {
		cells = append(cells, k8s.OptionalRBAC(k8s.Allow("get", of.GroupResource()), k8s.Allow("update", statusOf(of))))
	}
	return cell.Set(cells...)
}

// deniesListenerSets reports whether the role does not allow to serve ListenerSets, as those of other releases do not.
func (c *controller) deniesListenerSets() bool {
	of := k8s.Ref{Resource: listenerSets.Resource()}
	status := of
	status.Subresource = "status"
	return c.Permissions.Denies("list", of) || c.Permissions.Denies("watch", of) || c.Permissions.Denies("get", of) || c.Permissions.Denies("update", status)
}
