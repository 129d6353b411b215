// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import "strings"

// NamespaceLabel is the label of an identity that has the namespace of its pods. Identities of other things have none.
const NamespaceLabel = "k8s:io.kubernetes.pod.namespace"

// NamespaceIn returns the namespace in labels as keys in etcd have them, each with a semicolon after it; "" for none.
func NamespaceIn(labels string) string {
	for label := range strings.SplitSeq(labels, ";") {
		if namespace, is := strings.CutPrefix(label, NamespaceLabel+"="); is {
			return namespace
		}
	}
	return ""
}
