// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

func (c *Checker) checkSelectors(all []*v2.LabelSelector) string {
	for _, s := range all {
		if text := c.checkSelector(s); text != "" {
			return text
		}
	}
	return ""
}

// checkSelector checks a selector of labels whose keys may begin with a source, as in k8s:app.
func (c *Checker) checkSelector(s *v2.LabelSelector) string {
	if text, known := c.bad[s]; known {
		return text
	}
	first := firstError(s)
	if first == "" {
		return ""
	}
	c.bad[s] = "invalid label selector: " + first
	return c.bad[s]
}

const (
	// maxErrors is the number of errors that ends the check of a selector: the library has half a kilobyte of text for each bad value,
	// which may be one letter.
	maxErrors = 10
	// maxChecked is how much of a key, a value or an operator is checked, in bytes: whatever has so many is not valid, and of what a
	// finding has of it no more is kept.
	maxChecked = MaxText + 100
)

// firstError is the first of the errors of a selector, by their text; "" if there is none. Of more than maxErrors it is one of the first: of
// those of labels, in the order of their keys, and then of expressions.
func firstError(s *v2.LabelSelector) string {
	var found selectorErrors
	path := field.NewPath("matchLabels")
	keys := slices.AppendSeq(make([]string, 0, len(s.MatchLabels)), maps.Keys(s.MatchLabels))
	slices.Sort(keys)
	for _, key := range keys {
		found.add(validation.ValidateLabelName(plainKey(key), path)...)
		found.addValue(s.MatchLabels[key], func() *field.Path { return path })
		if found.enough() {
			return found.first
		}
	}
	for i, r := range s.MatchExpressions {
		path := field.NewPath("matchExpressions").Index(i)
		found.add(validation.ValidateLabelSelectorRequirement(metav1.LabelSelectorRequirement{
			Key: plainKey(r.Key), Operator: metav1.LabelSelectorOperator(beginning(string(r.Operator))), Values: r.Values[:min(1, len(r.Values))],
		}, validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}, path)...)
		for j, value := range r.Values {
			if found.addValue(value, func() *field.Path { return field.NewPath(fmt.Sprintf("matchExpressions[%d].values[%d]", i, j)) }); found.enough() {
				return found.first
			}
		}
		if found.enough() {
			return found.first
		}
	}
	return found.first
}

// selectorErrors are those of one selector, of which the first text is kept.
type selectorErrors struct {
	n     int
	first string
}

func (e *selectorErrors) enough() bool { return e.n >= maxErrors }

func (e *selectorErrors) add(all ...*field.Error) {
	for _, one := range all {
		if text := one.Error(); e.n == 0 || text < e.first {
			e.first = text
		}
		e.n++
	}
}

// addValue adds those of the value of a label at a path.
func (e *selectorErrors) addValue(value string, path func() *field.Path) {
	value = beginning(value)
	for _, problem := range content.IsValidLabelValue(value) {
		e.add(field.Invalid(path(), value, problem))
	}
}

// plainKey is the beginning of a key as agents have it in selectors, which is a name of a Kubernetes label: the source before a dot.
func plainKey(key string) string { return strings.Replace(beginning(key), ":", ".", 1) }

func beginning(text string) string { return text[:min(len(text), maxChecked)] }
