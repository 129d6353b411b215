// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// ING-30: a class that was the default one counts for a minute when it is away, and not for longer; one that was not does not.
func TestDefaultClassThatIsAway(t *testing.T) {
	classOf := func(isDefault string) *ingressClass {
		of := &ingressClass{}
		of.Name = class
		of.Annotations.Labels = slim.MakeLabels(map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault})
		return of
	}
	byDefault, other := classOf("true"), classOf("false")
	var d defaultClass
	start := time.Now()
	for i, step := range []struct {
		at   time.Duration
		of   *ingressClass
		is   bool
		wait time.Duration
	}{
		{0, nil, false, 0},
		{0, other, false, 0},
		{1, nil, false, 0},
		{2, byDefault, true, 0},
		{10, nil, true, 60},
		{30, nil, true, 40},
		{50, byDefault, true, 0},
		{60, nil, true, 60},
		{119, nil, true, 1},
		{120, nil, false, 0},
		{121, nil, false, 0},
		{122, byDefault, true, 0},
		{123, nil, true, 60},
		{124, other, false, 0},
		{125, nil, false, 0},
	} {
		if is, wait := d.decide(step.of, start.Add(step.at*time.Second)); is != step.is || wait != step.wait*time.Second {
			t.Errorf("step %d: %t for %s, want %t for %s", i, is, wait, step.is, step.wait*time.Second)
		}
	}
}
