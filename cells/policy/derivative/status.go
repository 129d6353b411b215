// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// parentStatus is what is written of the status of a policy with groups.
type parentStatus struct {
	Status struct {
		DerivativePolicies map[string]v2.DerivativePolicyStatus `json:"derivativePolicies,omitempty"`
	} `json:"status,omitzero"`
}

// errorInterval is the least time between two writes of error texts: providers put the numbers of requests into them.
const errorInterval = time.Minute

// entryFor is the entry of a derived policy after an attempt.
func entryFor(failure error, now time.Time) v2.DerivativePolicyStatus {
	e := v2.DerivativePolicyStatus{OK: failure == nil, LastUpdated: metav1.NewTime(now.UTC().Truncate(time.Second))}
	if failure != nil {
		e.Error = failure.Error()
	}
	return e
}

// set makes an entry the only one, and returns whether that made a difference. Without a name there is to be none. The time
// of an entry that says the same stays.
func (s *parentStatus) set(name string, want v2.DerivativePolicyStatus) (changed bool) {
	entries := s.Status.DerivativePolicies
	for other := range entries {
		if other != name {
			delete(entries, other)
			changed = true
		}
	}
	is, there := entries[name]
	if name == "" || there && isCurrent(is, want) {
		return changed
	}
	if entries == nil {
		s.Status.DerivativePolicies = map[string]v2.DerivativePolicyStatus{}
	}
	s.Status.DerivativePolicies[name] = want
	return true
}

// isCurrent reports whether an entry need not be written again.
func isCurrent(is, want v2.DerivativePolicyStatus) bool {
	recent := is.Error != "" && want.Error != "" && want.LastUpdated.Sub(is.LastUpdated.Time) < errorInterval
	return is.OK == want.OK && (is.Error == want.Error || recent)
}

// statusOf is the status of a policy as stored.
func statusOf(u *unstructured.Unstructured) (s parentStatus, err error) {
	text, err := json.Marshal(map[string]any{"status": u.Object["status"]})
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// concernsUser reports whether a failure is one that the status shows: of the policy, of a provider, or of the derived policy,
// which the API server has refused. Others pass, and the status could not be written either.
func concernsUser(err error) bool {
	var invalid *invalidError
	var lookup *lookupError
	var status apierrors.APIStatus
	if errors.As(err, &invalid) || errors.As(err, &lookup) {
		return true
	}
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests, http.StatusForbidden, http.StatusUnauthorized:
		return false
	}
	return true
}
