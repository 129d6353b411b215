// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

func TestAsSelector(t *testing.T) {
	node := labels.Set{"rack": "r1", "zone": "a"}
	for name, c := range map[string]struct {
		selector *v2.LabelSelector
		matches  bool
	}{
		"nil":         {nil, false},
		"empty":       {&v2.LabelSelector{}, true},
		"label":       {&v2.LabelSelector{MatchLabels: map[string]string{"rack": "r1"}}, true},
		"other label": {&v2.LabelSelector{MatchLabels: map[string]string{"rack": "r2"}}, false},
		"all terms": {&v2.LabelSelector{
			MatchLabels:      map[string]string{"rack": "r1"},
			MatchExpressions: []v2.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}},
		}, true},
		"one term not": {&v2.LabelSelector{
			MatchLabels:      map[string]string{"rack": "r1"},
			MatchExpressions: []v2.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}},
		}, false},
	} {
		selector, err := c.selector.AsSelector()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := selector.Matches(node); got != c.matches {
			t.Errorf("%s: matches %v, want %v", name, got, c.matches)
		}
	}
}

func TestAsSelectorNamesWhatIsWrong(t *testing.T) {
	wrong := &v2.LabelSelector{MatchExpressions: []v2.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpIn}}}
	if _, err := wrong.AsSelector(); err == nil || !strings.Contains(err.Error(), "zone") {
		t.Errorf("the error is %v", err)
	}
}

// K8S-23: an error costs and has a kilobyte, whatever the selector is.
func TestAsSelectorOfTheLargest(t *testing.T) {
	bad := slices.Repeat([]string{"!"}, 300_000)
	for name, s := range map[string]*v2.LabelSelector{
		"bad values":   {MatchExpressions: []v2.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: bad}}},
		"a long value": {MatchExpressions: []v2.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{strings.Repeat("!", 1<<20)}}}},
		"a long key":   {MatchExpressions: []v2.LabelSelectorRequirement{{Key: strings.Repeat("!", 1<<20), Operator: metav1.LabelSelectorOpIn, Values: []string{"!"}}}},
		"a long label": {MatchLabels: map[string]string{"a": strings.Repeat("!", 1<<20)}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := s.AsSelector()
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; err == nil || len(err.Error()) > 1<<10 || cost > 32<<20 {
			t.Errorf("%s: %d KiB were allocated, %.100v", name, cost>>10, err)
		}
	}
}
