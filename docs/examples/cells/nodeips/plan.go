// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeips

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// addresses is the value of a Node's key; nil if there is none.
func addresses(node *slim.Node) []byte {
	var ips []string
	for _, a := range node.Status.Addresses {
		if a.Type.String() == string(corev1.NodeInternalIP) {
			ips = append(ips, a.Address)
		}
	}
	if len(ips) == 0 {
		return nil
	}
	value, _ := json.Marshal(ips) // strings always have JSON
	return value
}
