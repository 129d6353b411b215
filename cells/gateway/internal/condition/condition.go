// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package condition is what conditions in statuses of the Gateway API say. It decides nothing.
package condition

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is the status of a condition, with its reason and message. It is comparable.
type Condition struct {
	OK              bool
	Reason, Message string
}

// True is a condition that holds.
func True[R ~string](reason R, message string) Condition {
	return Condition{true, string(reason), message}
}

// False is a condition that does not hold.
func False[R ~string](reason R, message string) Condition {
	return Condition{false, string(reason), message}
}

// maxMessage is the length of the message of a condition.
const maxMessage = 32768

// Set sets a condition, and reports whether it was another one. Its time changes with it.
func Set(to *[]metav1.Condition, kind string, v Condition, generation int64, now metav1.Time) (changed bool) {
	want := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: v.Reason, Message: strings.ToValidUTF8(v.Message[:min(len(v.Message), maxMessage)], ""),
		ObservedGeneration: generation, LastTransitionTime: now,
	}
	if v.OK {
		want.Status = metav1.ConditionTrue
	}
	i := slices.IndexFunc(*to, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		*to = append(*to, want)
		return true
	}
	has := &(*to)[i]
	if has.Status == want.Status && has.Reason == want.Reason && has.Message == want.Message && has.ObservedGeneration == generation {
		return false
	}
	*has = want
	return true
}

// Remove removes a condition, and reports whether it was there.
func Remove(from *[]metav1.Condition, kind string) (changed bool) {
	before := len(*from)
	*from = slices.DeleteFunc(*from, func(c metav1.Condition) bool { return c.Type == kind })
	return len(*from) != before
}
