// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/runtime/printable"
)

// shown is a condition as readers get it: its message is one line that controls nothing, whatever others have written in it.
func shown(v condition.Condition) condition.Condition {
	v.Message = printable.Line(v.Message)
	return v
}

// setCondition sets a condition as readers get it, and reports whether it was another one. Its time changes with it.
func setCondition(to *[]metav1.Condition, kind string, v condition.Condition, generation int64, now metav1.Time) (changed bool) {
	return condition.Set(to, kind, shown(v), generation, now)
}
