// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package selector reads selectors of labels that others write. The library says of every bad value of a selector what is wrong with it
// and joins that: a selector of 256 kB would be a text of megabytes, and minutes of work. Here the size is bounded before anything is
// read, and the first bad value is the error.
package selector

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/runtime/printable"
)

const (
	// MaxLength is the most bytes of a selector that is one text: about 200 names of nodes.
	MaxLength = 4 << 10
	// MaxTerms is the most labels, expressions and values of a selector that is an object, together.
	MaxTerms = 1000

	// maxError is how much of what the library says an error has, in bytes.
	maxError = 256
)

// Parse reads a selector as the flag -l of kubectl has it. An error has at most a line, whatever the text is.
func Parse(text string) (labels.Selector, error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("it has %d bytes, and may have %d: name a label that the objects share", len(text), MaxLength)
	}
	s, err := labels.Parse(text)
	if err != nil {
		return nil, cut(err)
	}
	return s, nil
}

// Of is the selector that an object has. nil selects nothing, an empty one everything, as in Kubernetes. An error has at most a line,
// whatever the selector is.
func Of(s *metav1.LabelSelector) (labels.Selector, error) {
	if err := check(s); err != nil {
		return nil, cut(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, cut(err)
	}
	return selector, nil
}

// check finds what is too large, and the first bad value: the library goes through all of them.
func check(s *metav1.LabelSelector) error {
	if s == nil {
		return nil
	}
	terms := len(s.MatchLabels) + len(s.MatchExpressions)
	for _, e := range s.MatchExpressions {
		terms += len(e.Values)
	}
	if terms > MaxTerms {
		return fmt.Errorf("it has %d labels, expressions and values, and may have %d: name a label that the objects share", terms, MaxTerms)
	}
	for _, e := range s.MatchExpressions {
		for _, value := range e.Values {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				return fmt.Errorf("%q is no value of a label: %s", printable.Cut(value, maxError/2), problems[0])
			}
		}
	}
	return nil
}

// cut returns an error that does not keep the text of the one that it is made of.
func cut(err error) error { return errors.New(printable.Cut(err.Error(), maxError)) }
