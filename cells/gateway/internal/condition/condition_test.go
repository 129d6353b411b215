// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package condition

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is said already is not written again, its time is that of the change, and messages are as long as the API server takes them.
func TestSet(t *testing.T) {
	first, later := metav1.Now(), metav1.NewTime(time.Now().Add(time.Hour))
	var all []metav1.Condition
	for _, step := range []struct {
		v          Condition
		generation int64
		at         metav1.Time
		changed    bool
		since      metav1.Time
	}{
		{True("Accepted", "x"), 1, first, true, first},
		{True("Accepted", "x"), 1, later, false, first},
		{True("Accepted", "x"), 2, later, true, later},
		{False("Refused", "x"), 2, later, true, later},
		{False("Refused", strings.Repeat("x", maxMessage+1)), 2, later, true, later},
		{False("Refused", strings.Repeat("x", maxMessage+2)), 2, later, false, later},
	} {
		if got := Set(&all, "Accepted", step.v, step.generation, step.at); got != step.changed || len(all) != 1 || all[0].LastTransitionTime != step.since || len(all[0].Message) > maxMessage {
			t.Errorf("%t %s: changed %t, %+v", step.v.OK, step.v.Reason, got, all)
		}
	}
	if Remove(&all, "Other") || !Remove(&all, "Accepted") || len(all) > 0 {
		t.Errorf("what is left is %v", all)
	}
}
