// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import "strings"

// Namespace is what the duties read of a corev1.Namespace.
type Namespace struct {
	NamespaceMeta `json:"metadata"`
}

// NamespaceMeta is the metadata of a Namespace.
type NamespaceMeta struct {
	Meta
	Labels            Labels                    `json:"labels"`
	Annotations       Subset[CiliumAnnotations] `json:"annotations"`
	DeletionTimestamp Time                      `json:"deletionTimestamp"`
}

// CiliumAnnotations keeps the keys that address Cilium: "service.cilium.io/…",
// "cilium.io/…", and the older "io.cilium/…" and "io.cilium.…/…".
type CiliumAnnotations struct{}

// Keep implements KeyFilter.
func (CiliumAnnotations) Keep(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "cilium.io" || strings.HasSuffix(domain, ".cilium.io") ||
		domain == "io.cilium" || strings.HasPrefix(domain, "io.cilium.")
}
