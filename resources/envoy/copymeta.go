// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Meta is labels and annotations.
type Meta struct{ Labels, Annotations map[string]string }

// copied has the keys of what was copied to an object: labels, a semicolon, annotations, with commas between.
const copied = "skep.dev/copied"

// CopyMeta copies labels and annotations to an object that is made for another one, and removes those that were copied before and are not
// wanted any more; what others wrote stays (ENV-38). Which were copied is kept in an annotation. It comes with the first change, so
// that a take-over writes nothing; until then last is what was wanted before, if that is known.
func CopyMeta(to metav1.Object, isNew bool, want, last Meta) {
	before := Meta{maps.Clone(to.GetLabels()), maps.Clone(to.GetAnnotations())}
	record, recorded := before.Annotations[copied]
	labels, annotations, _ := strings.Cut(record, ";")
	to.SetLabels(without(to.GetLabels(), want.Labels, append(strings.Split(labels, ","), keysOf(last.Labels)...)))
	to.SetAnnotations(without(to.GetAnnotations(), want.Annotations, append(strings.Split(annotations, ","), keysOf(last.Annotations)...)))
	AddMeta(to, want.Labels, want.Annotations)
	if len(want.Labels)+len(want.Annotations) == 0 {
		delete(to.GetAnnotations(), copied)
	} else if recorded || isNew || !maps.Equal(before.Labels, to.GetLabels()) || !maps.Equal(before.Annotations, to.GetAnnotations()) {
		AddMeta(to, nil, map[string]string{copied: strings.Join(keysOf(want.Labels), ",") + ";" + strings.Join(keysOf(want.Annotations), ",")})
	}
}

// without removes keys that are not wanted.
func without(from, want map[string]string, keys []string) map[string]string {
	for _, key := range keys {
		if _, wanted := want[key]; !wanted {
			delete(from, key)
		}
	}
	return from
}

func keysOf(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
