// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

func checkSelectors(all []*v2.LabelSelector) string {
	for _, s := range all {
		if text := checkSelector(s); text != "" {
			return text
		}
	}
	return ""
}

// checkSelector checks a selector of labels whose keys may begin with a source, as in k8s:app.
func checkSelector(s *v2.LabelSelector) string {
	full := metav1.LabelSelector{MatchLabels: make(map[string]string, len(s.MatchLabels))}
	for key, value := range s.MatchLabels {
		full.MatchLabels[plainKey(key)] = value
	}
	for _, r := range s.MatchExpressions {
		full.MatchExpressions = append(full.MatchExpressions, metav1.LabelSelectorRequirement{Key: plainKey(r.Key), Operator: r.Operator, Values: r.Values})
	}
	errs := validation.ValidateLabelSelector(&full, validation.LabelSelectorValidationOptions{}, nil)
	if len(errs) == 0 {
		return ""
	}
	first := errs[0] // those of labels come in any order
	for _, e := range errs[1:] {
		if e.Error() < first.Error() {
			first = e
		}
	}
	return fmt.Sprintf("invalid label selector: %v", first)
}

// plainKey is a key as agents have it in selectors, which is a name of a Kubernetes label: the source before a dot.
func plainKey(key string) string { return strings.Replace(key, ":", ".", 1) }
