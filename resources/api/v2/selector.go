// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// LabelSelector selects objects by their labels; all its terms have to hold.
// It differs from the selector of Kubernetes in the checks of its schema, not in its meaning.
//
// +structType=atomic
type LabelSelector struct {
	// Labels that have to be present with these values.
	//
	// +skep:validation:values:MaxLength=63
	// +skep:validation:values:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// Conditions on labels that all have to hold.
	//
	// +listType=atomic
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelectorRequirement is a condition on one label.
type LabelSelectorRequirement struct {
	// Name of the label.
	//
	// +required
	Key string `json:"key"`
	// How the value of the label relates to the given values.
	//
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values to compare with; none for Exists and DoesNotExist, at least one otherwise.
	//
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// AsSelector returns the selector in the form that matches labels of Kubernetes objects.
// A nil selector matches nothing and an empty one everything, as in Kubernetes;
// a field whose absence means everything has to be asked for nil first.
// It is not for selectors of endpoints and identities, whose keys carry the source of the label.
// An error has a kilobyte at most, whatever the selector is, and is about the first bad value.
func (s *LabelSelector) AsSelector() (labels.Selector, error) {
	if s == nil {
		return labels.Nothing(), nil
	}
	selector := metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, r := range s.MatchExpressions {
		for _, value := range r.Values { // the library makes half a kilobyte of text for each bad one
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				return nil, fmt.Errorf("label selector: a value of %q: %q: %s", cut(r.Key), cut(value), problems[0])
			}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	matcher, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return nil, fmt.Errorf("label selector %s: %s", cut(fmt.Sprintf("%+v", *s)), cut(err.Error()))
	}
	return matcher, nil
}

// maxPart is the most bytes of a part of an error.
const maxPart = 300

func cut(text string) string {
	if len(text) <= maxPart {
		return text
	}
	return strings.ToValidUTF8(text[:maxPart], "") + "…"
}
