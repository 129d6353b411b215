// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Set is the labels of an identity: values by source:key, as the object's
// security-labels have them.
type Set map[string]string

// String returns the set as keys of a kvstore have it: source:key=value; for each
// label, in the order of keys without their source.
func (s Set) String() string {
	var b strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(s), byKey) {
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(s[name])
		b.WriteByte(';')
	}
	return b.String()
}

func byKey(a, b string) int {
	sourceA, keyA, _ := strings.Cut(a, ":")
	sourceB, keyB, _ := strings.Cut(b, ":")
	return cmp.Or(strings.Compare(keyA, keyB), strings.Compare(sourceA, sourceB))
}

// Metadata returns the labels of the object itself: those from Kubernetes,
// without namespace labels and without what the API server would refuse.
func (s Set) Metadata() map[string]string {
	meta := map[string]string{}
	for name, value := range s {
		key, ok := strings.CutPrefix(name, sourceK8s+":")
		if ok && !strings.HasPrefix(key, NamespaceLabelPrefix) &&
			len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			meta[key] = value
		}
	}
	return meta
}
