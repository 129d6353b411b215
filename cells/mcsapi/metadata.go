// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/clustermesh"
)

// Annotations of ServiceImports that this duty made: the keys of labels and annotations that come from exports, which go with
// them. Others are their users'.
const (
	labelsOfExports      = "skep.dev/exported-labels"
	annotationsOfExports = "skep.dev/exported-annotations"
)

// mergeMetadata decides about labels and annotations, by the first export as a whole. Of one of another cluster those come here that are
// allowed: they may have something made, such as names in a DNS zone.
func (m *merged) mergeMetadata(exports []*clustermesh.ServiceExport, r rules) {
	m.labels, m.annotations = exports[0].Labels, exports[0].Annotations
	if exports[0].Cluster != r.cluster {
		m.labels, m.annotations = r.labels.of(m.labels), r.annotations.of(m.annotations)
	}
	m.compare(mcsv1alpha1.ServiceExportReasonLabelsConflict, "set of labels", exports, func(e *clustermesh.ServiceExport) any { return e.Labels })
	m.compare(mcsv1alpha1.ServiceExportReasonAnnotationsConflict, "set of annotations", exports, func(e *clustermesh.ServiceExport) any { return e.Annotations })
}

// metadata is the labels and annotations of a ServiceImport that follows exports, which has the given ones.
func (p importPlan) metadata(labels, annotations map[string]string) (wantLabels, wantAnnotations map[string]string) {
	if p.isLeft {
		return p.metadataOfOriginal(annotations)
	}
	wantLabels = withExported(labels, annotations[labelsOfExports], p.merged.labels)
	wantAnnotations = withExported(annotations, annotations[annotationsOfExports], p.merged.annotations)
	setKeys(wantAnnotations, labelsOfExports, p.merged.labels)
	setKeys(wantAnnotations, annotationsOfExports, p.merged.annotations)
	return wantLabels, wantAnnotations
}

// metadataOfOriginal is the labels and annotations of a ServiceImport that an original has made: those of the exports alone, and its signs.
func (p importPlan) metadataOfOriginal(has map[string]string) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	maps.Copy(labels, p.merged.labels)
	maps.Copy(annotations, p.merged.annotations)
	for key, value := range has {
		if clustermesh.IsReservedAnnotation(key) || key == supportedFamilies {
			annotations[key] = value
		}
	}
	return labels, annotations
}

// withExported is a map with the pairs that are exported, without those that were.
func withExported(has map[string]string, were string, exported map[string]string) map[string]string {
	want := map[string]string{}
	maps.Copy(want, has)
	for key := range strings.FieldsSeq(were) {
		if !clustermesh.IsReservedAnnotation(key) {
			delete(want, key)
		}
	}
	maps.Copy(want, exported)
	return want
}

// setKeys records keys in an annotation.
func setKeys(annotations map[string]string, name string, of map[string]string) {
	if delete(annotations, name); len(of) > 0 {
		annotations[name] = strings.Join(slices.Sorted(maps.Keys(of)), " ")
	}
}

// leftOut says which labels and annotations of the ServiceExport are not exported, "" for none.
func (e *serviceExport) leftOut() string {
	_, labels := clustermesh.ExportedLabels(e.Spec.ExportedLabels.Map())
	_, annotations := clustermesh.ExportedAnnotations(e.Spec.ExportedAnnotations.Map())
	var texts []string
	for what, keys := range map[string][]string{"labels": labels, "annotations": annotations} {
		if len(keys) > 0 {
			texts = append(texts, fmt.Sprintf("%d %s are not exported, as they are not valid, reserved or too large, beginning with %.64q", len(keys), what, keys[0]))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}
