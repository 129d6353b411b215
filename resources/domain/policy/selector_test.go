// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/policy"
)

// allocated is how many bytes a function allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func in(key string, values ...string) v2.LabelSelectorRequirement {
	return v2.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
}

// K8S-23: the largest selectors that the API server accepts cost megabytes at most in all releases together, their findings are lines, and the same
// each time.
func TestLargestSelectors(t *testing.T) {
	labels := map[string]string{}
	var keys []v2.LabelSelectorRequirement
	for i := range 90_000 {
		labels[fmt.Sprintf("!%06d", i)] = "!"
	}
	for range 40_000 {
		keys = append(keys, v2.LabelSelectorRequirement{Key: "!", Operator: "?"})
	}
	values := make([]string, 375_000)
	for i := range values {
		values[i] = "!"
	}
	long := strings.Repeat("!", 1_400_000)
	for name, s := range map[string]*v2.LabelSelector{
		"values":          {MatchExpressions: []v2.LabelSelectorRequirement{in("a", values...)}},
		"labels":          {MatchLabels: labels},
		"keys":            {MatchExpressions: keys},
		"a long value":    {MatchExpressions: []v2.LabelSelectorRequirement{in("a", long)}},
		"a long key":      {MatchExpressions: []v2.LabelSelectorRequirement{in(long)}},
		"a long operator": {MatchExpressions: []v2.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOperator(long)}}},
		"a long label":    {MatchLabels: map[string]string{"a": long}},
		"parts of a name": {MatchLabels: map[string]string{strings.Repeat("/", 1_400_000): ""}},
	} {
		r := &v2.Rule{EndpointSelector: s}
		var text string
		cost := allocated(func() {
			checker := policy.NewChecker(r)
			for range 4 {
				text = checker.Check(oldest).First(all)
			}
		})
		if cost > 5<<20 {
			t.Errorf("%s: %d KiB were allocated", name, cost>>10)
		}
		if !strings.HasPrefix(text, "invalid label selector: match") || len(text) > policy.MaxText+len("…") {
			t.Errorf("%s: %d bytes, %.100s", name, len(text), text)
		}
		if again := policy.NewChecker(r).Check(oldest).First(all); again != text {
			t.Errorf("%s: %.200s, and then %.200s", name, text, again)
		}
	}
}

// VALID-6: of the few errors of an ordinary selector the first one is reported, by its text, as the library has it.
func TestSelectorErrorsAreThoseOfTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	keys := []string{"a", "a.b/c", "a b", "", "/a", "é", strings.Repeat("k", 70), "a/b/c"}
	texts := []string{"v", "", "-", "a b", strings.Repeat("v", 70)}
	for range 3000 {
		s := v2.LabelSelector{MatchLabels: map[string]string{}}
		full := metav1.LabelSelector{MatchLabels: s.MatchLabels}
		for range random.IntN(3) {
			s.MatchLabels[pick(keys...)] = pick(texts...)
		}
		for range random.IntN(2) {
			e := v2.LabelSelectorRequirement{Key: pick(keys...), Operator: metav1.LabelSelectorOperator(pick("In", "NotIn", "Exists", "DoesNotExist", "Like", ""))}
			for range random.IntN(3) {
				e.Values = append(e.Values, pick(texts...))
			}
			s.MatchExpressions = append(s.MatchExpressions, e)
			full.MatchExpressions = append(full.MatchExpressions, metav1.LabelSelectorRequirement(e))
		}
		want := ""
		errs := validation.ValidateLabelSelector(&full, validation.LabelSelectorValidationOptions{}, nil)
		for i, err := range errs {
			if text := "invalid label selector: " + err.Error(); i == 0 || text < want {
				want = text
			}
		}
		if got := policy.NewChecker(&v2.Rule{EndpointSelector: &s}).Check(oldest).First(all); got != want && len(errs) < 10 {
			t.Fatalf("%+v: %q, want %q", s, got, want)
		}
	}
}

// K8S-24: a finding has a bound, whatever it is about.
func TestFindingsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 700_000)
	for _, text := range []string{
		egress(`{"toEntities":["` + long + `"]}`), egress(`{"toCIDR":["` + long + `"]}`), egress(`{"toFQDNs":[{"matchName":" ` + long + `"}]}`),
		egress(port(`{"port":"`+long+`"}`, "")), egress(port(tcp, `,"rules":{"http":[{"headerMatches":[{"name":"a","mismatch":"`+long+`"}]}]}`)),
	} {
		found := policy.NewChecker(rule(t, text)).Check(oldest)
		if n := len(found[len(found)-1].Text); n > policy.MaxText+len("…") || n < policy.MaxText {
			t.Errorf("%.60s: a finding of %d bytes", text, n)
		}
	}
}
