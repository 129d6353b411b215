// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxMetadata is how many bytes of labels, and as many of annotations, an export has. An object has at most 256 KiB of
// annotations, and a value of etcd 1.5 MiB.
const maxMetadata = 64 << 10

// ExportedLabels returns the labels of a ServiceExport that are exported, nil for none, and the keys of those that are not: what
// is no label, or says what the object itself is (docs/wire/mcsapi.md, MCS-33). Too many are none at all.
func ExportedLabels(of map[string]string) (exported map[string]string, left []string) {
	return filter(of, func(key, value string) bool {
		return len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) == 0 && !isReservedLabel(key)
	})
}

// ExportedAnnotations is ExportedLabels of annotations.
func ExportedAnnotations(of map[string]string) (exported map[string]string, left []string) {
	return filter(of, func(key, _ string) bool {
		return len(validation.IsQualifiedName(strings.ToLower(key))) == 0 && !IsReservedAnnotation(key)
	})
}

// filter returns the pairs that are valid, nil for none, and the keys of the others.
func filter(of map[string]string, isValid func(key, value string) bool) (valid map[string]string, left []string) {
	size := 0
	for key, value := range of {
		if !isValid(key, value) {
			left = append(left, key)
			continue
		}
		if valid == nil {
			valid = map[string]string{}
		}
		if size += len(key) + len(value); size <= maxMetadata {
			valid[key] = value
		}
	}
	if size > maxMetadata {
		valid, left = nil, slices.Collect(maps.Keys(of))
	}
	slices.Sort(left)
	return valid, left
}

// isReservedLabel reports whether a label says whose the object is, or what serves it.
func isReservedLabel(key string) bool {
	switch domain, _, _ := strings.Cut(key, "/"); domain {
	case "multicluster.kubernetes.io", "service.kubernetes.io", "endpointslice.kubernetes.io", "skep.dev":
		return true
	}
	return key == "kubernetes.io/service-name"
}

// IsReservedAnnotation reports whether an annotation says whose the object is, or whether it is global.
func IsReservedAnnotation(key string) bool {
	switch domain, _, _ := strings.Cut(key, "/"); domain {
	case "multicluster.kubernetes.io", "skep.dev":
		return true
	}
	switch key {
	case corev1.LastAppliedConfigAnnotation,
		"service.cilium.io/global", "io.cilium/global-service", "service.cilium.io/shared", "io.cilium/shared-service":
		return true
	}
	return false
}
