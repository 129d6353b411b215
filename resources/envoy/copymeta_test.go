// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ENV-38; number 47 of the contract's gateway-api.md: what was copied goes with what it was copied from, what others wrote stays, and
// what is there already costs no write.
func TestCopyMeta(t *testing.T) {
	has := &metav1.ObjectMeta{Labels: map[string]string{"a": "1", "theirs": "x"}, Annotations: map[string]string{"b": "2", "theirs": "y"}}
	step := func(name string, isNew bool, want, last Meta, result *metav1.ObjectMeta) {
		t.Helper()
		CopyMeta(has, isNew, want, last)
		if diff := cmp.Diff(result, has); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	one := Meta{map[string]string{"a": "1"}, map[string]string{"b": "2"}}
	two := Meta{map[string]string{"a": "1", "c": "3"}, map[string]string{"b": "3"}}
	none := Meta{}
	step("a take-over", false, one, none, &metav1.ObjectMeta{Labels: map[string]string{"a": "1", "theirs": "x"}, Annotations: map[string]string{"b": "2", "theirs": "y"}})
	step("a change", false, two, one, &metav1.ObjectMeta{
		Labels: map[string]string{"a": "1", "c": "3", "theirs": "x"}, Annotations: map[string]string{"b": "3", "theirs": "y", copied: "a,c;b"}})
	step("after a restart", false, none, none, &metav1.ObjectMeta{Labels: map[string]string{"theirs": "x"}, Annotations: map[string]string{"theirs": "y"}})
	has.Annotations = map[string]string{"b": "2", "theirs": "y"}
	step("by what was wanted before", false, none, one, &metav1.ObjectMeta{Labels: map[string]string{"theirs": "x"}, Annotations: map[string]string{"theirs": "y"}})
	has = &metav1.ObjectMeta{}
	step("a new one", true, one, none, &metav1.ObjectMeta{Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"b": "2", copied: "a;b"}})
}
