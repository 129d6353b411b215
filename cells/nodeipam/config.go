// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

// Config is which ports of nodes Services get.
type Config struct {
	// NodeIPAMJoinNamespaces is for a transition (NIPAM-14, NIPAM-15).
	NodeIPAMJoinNamespaces bool `flag:"node-ipam-join-namespaces" usage:"Give Services addresses of nodes also at ports of components of the cluster, and of older Services and of listeners of other namespaces, as the original does"`
}
