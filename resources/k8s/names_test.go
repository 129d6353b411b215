// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"strings"
	"testing"
)

// K8S-18; numbers 2.5 of the contract's tenants.md: what cannot be the name of an object does not exist, and the API server is not
// asked.
func TestNamesThatNoObjectHas(t *testing.T) {
	d := newDesk(t)
	d.create(t, "x")
	d.verbs(t)
	for _, name := range []string{
		"../../kube-system/configmaps/x", "a/b", "%2e%2e", "..", ".", strings.Repeat("a", 300), "a\nb", "a b", "x,metadata.namespace=kube-system", "a\x00", "ä", `a\,b`,
	} {
		other := d.ref("x")
		other.Namespace = name
		for _, ref := range []Ref{d.ref(name), other} {
			if _, err := d.Get(why(t), ref); !IsNotFound(err, ref) || len(err.Error()) > 1000 {
				t.Errorf("reading %.40q of %.40q: %v", ref.Name, ref.Namespace, err)
			}
			if _, _, err := d.Modify(why(t), ref, label); !IsNotFound(err, ref) {
				t.Errorf("changing %.40q of %.40q: %v", ref.Name, ref.Namespace, err)
			}
			if err := d.Delete(why(t), ref, Preconditions{UID: "u"}); !IsNotFound(err, ref) {
				t.Errorf("deleting %.40q of %.40q: %v", ref.Name, ref.Namespace, err)
			}
		}
	}
	d.expect(t, "names that no object has")
	for _, name := range []string{"x", "a.b-c", "system:node:a", "A_b", "0", strings.Repeat("a", 253)} {
		if !canBeName(name) {
			t.Errorf("%.40q cannot be a name", name)
		}
	}
}
