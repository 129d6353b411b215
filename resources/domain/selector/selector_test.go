// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package selector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selectors mean what they mean in Kubernetes.
func TestSelectors(t *testing.T) {
	has := labels.Set{"a": "1", "zone": "b"}
	for text, want := range map[string]bool{"": true, "a=1": true, "a in (2,3)": false, "a in (1,2),zone!=c": true, "!a": false} {
		s, err := Parse(text)
		if err != nil || s.Matches(has) != want {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	in := func(values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: values}}}
	}
	for want, all := range map[bool][]*metav1.LabelSelector{
		true:  {{}, {MatchLabels: map[string]string{"a": "1"}}, in("1", "2")},
		false: {nil, {MatchLabels: map[string]string{"a": "2"}}, in("3")},
	} {
		for _, of := range all {
			if s, err := Of(of); err != nil || s.Matches(has) != want {
				t.Errorf("%v: %v, %v", of, s, err)
			}
		}
	}
}

// The largest selectors that the API server takes cost milliseconds, and their errors are lines.
func TestBounds(t *testing.T) {
	bad := func(n int) (values []string) {
		for i := range n {
			values = append(values, fmt.Sprintf("$%d", i))
		}
		return values
	}
	expression := func(values []string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: values}}}
	}
	many := &metav1.LabelSelector{}
	for range 100_000 {
		many.MatchExpressions = append(many.MatchExpressions, metav1.LabelSelectorRequirement{Key: "$", Operator: "?"})
	}
	tests := map[string]func() error{
		"a text of values": func() error { _, err := Parse("a in (" + strings.Join(bad(60_000), ",") + ")"); return err },
		"the longest text": func() error {
			_, err := Parse(("a in (" + strings.Join(bad(2000), ","))[:MaxLength-1] + ")")
			return err
		},
		"a long value":    func() error { _, err := Parse("a=" + strings.Repeat("x", MaxLength-2)); return err },
		"values":          func() error { _, err := Of(expression(bad(300_000))); return err },
		"the most values": func() error { _, err := Of(expression(bad(MaxTerms - 1))); return err },
		"one long value":  func() error { _, err := Of(expression([]string{strings.Repeat("$", 1<<20)})); return err },
		"expressions":     func() error { _, err := Of(many); return err },
		"one long label": func() error {
			_, err := Of(&metav1.LabelSelector{MatchLabels: map[string]string{"a": strings.Repeat("$", 1<<20)}})
			return err
		},
		"one long name": func() error {
			_, err := Of(&metav1.LabelSelector{MatchLabels: map[string]string{strings.Repeat("$", 1<<20): "a"}})
			return err
		},
	}
	for name, read := range tests {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			err := read()
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			if err == nil || len(err.Error()) > maxError+len("…") {
				t.Errorf("error: %v", err)
			}
		})
	}
}
