// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import "testing"

func TestNamespaceIn(t *testing.T) {
	for labels, want := range map[string]string{
		"k8s:app=web;k8s:io.kubernetes.pod.namespace=aa;": "aa", "k8s:io.kubernetes.pod.namespace=bb;k8s:x=;": "bb",
		"": "", "cidr:10.0.0.0/8;reserved:world;": "", "k8s:x=k8s:io.kubernetes.pod.namespace=aa;": "", "k8s:io.kubernetes.pod.namespace;": "",
	} {
		if got := NamespaceIn(labels); got != want {
			t.Errorf("%q: %q, want %q", labels, got, want)
		}
	}
}
