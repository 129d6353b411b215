// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"slices"
	"testing"
)

func service(namespace, name string) Trigger {
	return Trigger{Kind: "Service", Namespace: namespace, Name: name, ResourceVersion: "7"}
}

func TestParseObject(t *testing.T) {
	for _, test := range []struct {
		text, namespace string
		want            [3]string
		ok              bool
	}{
		{"CiliumNode/a", "", [3]string{"CiliumNode", "", "a"}, true},
		{"Service/default/s03", "", [3]string{"Service", "default", "s03"}, true},
		{"Service/s03", "default", [3]string{"Service", "default", "s03"}, true},
		{"svc/default/s03", "default", [3]string{"svc", "default", "s03"}, true},
		{"Service/shop/s03", "default", [3]string{}, false},
		{"Service", "", [3]string{}, false},
		{"Service/", "", [3]string{}, false},
		{"Service//s03", "", [3]string{}, false},
		{"Service/a/b/c", "", [3]string{}, false},
	} {
		kind, namespace, name, err := parseObject(test.text, test.namespace)
		if got := [3]string{kind, namespace, name}; (err == nil) != test.ok || test.ok && got != test.want {
			t.Errorf("%s in %q: %q, %v", test.text, test.namespace, got, err)
		}
	}
}

// An object that is known in other namespaces only is found there.
func TestTheNamespaceIsSuggested(t *testing.T) {
	b := NewHistory()
	cause := func(ns string) *Cause { return &Cause{Rule: "fjord give", Triggers: []Trigger{service(ns, "s03")}} }
	b.RecordWrite(Write{Resource: "services", Namespace: "shop", Name: "s03", Cause: cause("shop")})
	b.RecordDecision(cause("default"), "default/s03", nil)
	for _, kind := range []string{"Service", "svc"} {
		x := b.For(kind, "", "s03")
		if want := []string{"default", "shop"}; !slices.Equal(x.Namespaces, want) || len(x.Writes)+len(x.Decisions) > 0 {
			t.Errorf("%s: %+v", kind, x)
		}
		if x := b.For(kind, "shop", "s03"); len(x.Writes) != 1 || len(x.Namespaces) > 0 {
			t.Errorf("%s: %+v", kind, x)
		}
	}
	if x := b.For("Pod", "", "s03"); len(x.Namespaces) > 0 {
		t.Errorf("%+v", x)
	}
}
