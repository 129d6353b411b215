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

// Set holds the labels of an identity: values by source:key, as in the security-labels
// of a CiliumIdentity.
type Set map[string]string

// String returns the set as in keys of the kvstore: source:key=value; for each label,
// ordered by key without source.
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

// Metadata returns the metadata labels of the CiliumIdentity: the namespace, none for an
// identity of no namespace.
func (s Set) Metadata() map[string]string {
	namespace, ok := s[sourceK8s+":"+keyNamespace]
	if !ok || len(validation.IsValidLabelValue(namespace)) > 0 {
		return nil
	}
	return map[string]string{keyNamespace: namespace}
}
