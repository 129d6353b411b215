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

// Metadata returns the metadata labels of the CiliumIdentity: those from Kubernetes,
// without namespace labels and without those that the API server would reject.
func (s Set) Metadata() map[string]string {
	meta := map[string]string{}
	for name, value := range s {
		if key, ok := MetadataKey(name, value); ok {
			meta[key] = value
		}
	}
	return meta
}

// MetadataKey returns the key of a label in the metadata, false if it is not there.
func MetadataKey(name, value string) (key string, ok bool) {
	key, ok = strings.CutPrefix(name, sourceK8s+":")
	return key, ok && !strings.HasPrefix(key, NamespaceLabelPrefix) &&
		len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
}
