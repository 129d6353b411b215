// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/runtime/printable"
)

// refusal is why the derived Service cannot be written; its text is empty if it can.
type refusal struct {
	reason mcsv1alpha1.ServiceImportConditionReason
	text   string
}

// failed is the reason of a ServiceImport whose derived Service cannot be written; the API has none for it.
const failed mcsv1alpha1.ServiceImportConditionReason = "Failed"

// Messages that say no more than their reasons.
const (
	canBeExported   = "The Service can be exported"
	noServiceOfName = "There is no Service of this name and namespace"
	notValid        = "The ServiceExport is not valid"
	isExported      = "The Service is exported"
	allAgree        = "All exports agree"
	derivedExists   = "The derived Service exists"
)

// wording is how a condition puts it.
type wording struct{ reason, message string }

// byOriginals is how originals say what these messages do (MCS-50).
var byOriginals = map[string]wording{
	canBeExported:   {"Valid", "ServiceExport is valid"},
	noServiceOfName: {"NoService", "Service doesn't exist"},
	notValid:        {"Pending", "ServiceExport is not valid"},
	isExported:      {"Ready", "ServiceExport is ready"},
	allAgree:        {"NoConflicts", "ServiceExport has no conflicts"},
	derivedExists:   {"Ready", "ServiceImport is ready"},
}

// meansTheSame reports whether a condition is one with which an original says what is wanted.
func meansTheSame(has *metav1.Condition, want metav1.Condition) bool {
	return has != nil && has.Status == want.Status && byOriginals[want.Message] == wording{has.Reason, has.Message}
}

// exportConditions are the conditions of the ServiceExport.
func (s *state) exportConditions(m merged, refused refusal) []metav1.Condition {
	valid := newCondition(mcsv1alpha1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1alpha1.ServiceExportReasonValid, canBeExported)
	switch reason := s.whyInvalid(); reason {
	case "":
		return []metav1.Condition{valid, s.readyCondition(refused), s.conflictCondition(m)}
	case notGlobal:
		valid = newCondition(mcsv1alpha1.ServiceExportConditionValid, metav1.ConditionFalse, reason, "The Namespace is not global, so that nothing in it is exported")
	case mcsv1alpha1.ServiceExportReasonNoService:
		valid = newCondition(mcsv1alpha1.ServiceExportConditionValid, metav1.ConditionFalse, reason, noServiceOfName)
	default:
		valid = newCondition(mcsv1alpha1.ServiceExportConditionValid, metav1.ConditionFalse, reason, "A Service of type ExternalName cannot be exported")
	}
	return []metav1.Condition{
		valid,
		newCondition(mcsv1alpha1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1alpha1.ServiceExportReasonPending, notValid),
	}
}

// whyInvalid is why nothing is exported of the ServiceExport, "" if something is.
func (s *state) whyInvalid() mcsv1alpha1.ServiceExportConditionReason {
	if s.isLocal {
		return notGlobal
	}
	return whyInvalid(s.service)
}

func newCondition(t mcsv1alpha1.ServiceExportConditionType, status metav1.ConditionStatus, reason mcsv1alpha1.ServiceExportConditionReason, message string) metav1.Condition {
	return metav1.Condition{Type: string(t), Status: status, Reason: string(reason), Message: limited(message)}
}

// limited is a message of a condition as readers get it: without what the API server would refuse for its length, and in one line that controls
// nothing, whatever others have written in it.
func limited(message string) string {
	const most = 32 << 10
	message = printable.Line(message)
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-len("…")], "") + "…"
}

func (s *state) readyCondition(refused refusal) metav1.Condition {
	status, reason, message := metav1.ConditionTrue, mcsv1alpha1.ServiceExportReasonExported, isExported
	if left := s.export.leftOut(); left != "" {
		message += "; " + left
	}
	if left := textOfBeyond(portsBeyond(s.published)); left != "" {
		message += "; " + left
	}
	switch {
	case refused.text != "":
		status, reason, message = metav1.ConditionFalse, mcsv1alpha1.ServiceExportReasonFailed, refused.text
	case len(s.occupied) > 0:
		status, reason, message = metav1.ConditionFalse, mcsv1alpha1.ServiceExportReasonFailed, s.textOfOccupied()
	case s.noCopies && s.service.Spec.Selector.Len() == 0:
		message += "; it has no selector, and the role of the operator does not allow to write EndpointSlices of its endpoints for the derived Service"
	}
	return newCondition(mcsv1alpha1.ServiceExportConditionReady, status, reason, message)
}

// conflictCondition has the reasons of all conflicts, with commas between them as the API wants them.
func (s *state) conflictCondition(m merged) metav1.Condition {
	has := meta.FindStatusCondition(s.export.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionConflict))
	if has != nil && len(s.unknown) > 0 && (len(m.conflicts) == 0 || has.Status == metav1.ConditionTrue) {
		return *has // it may still be so
	}
	if len(m.conflicts) == 0 {
		return newCondition(mcsv1alpha1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1alpha1.ServiceExportReasonNoConflicts, allAgree)
	}
	var reasons, texts []string
	for _, c := range m.conflicts {
		if n := len(reasons); n == 0 || reasons[n-1] != string(c.reason) {
			reasons = append(reasons, string(c.reason))
		}
		texts = append(texts, c.text)
	}
	return metav1.Condition{
		Type: string(mcsv1alpha1.ServiceExportConditionConflict), Status: metav1.ConditionTrue,
		Reason: strings.Join(reasons, ","), Message: limited(strings.Join(texts, "; ")),
	}
}

// importConditions are the conditions of a ServiceImport, when its derived Service is as it is to be, or cannot be.
func (s *state) importConditions(refused refusal) []metav1.Condition {
	ready := metav1.Condition{
		Type: string(mcsv1alpha1.ServiceImportConditionReady), Status: metav1.ConditionTrue,
		Reason: string(mcsv1alpha1.ServiceImportReasonReady), Message: derivedExists,
	}
	switch {
	case s.isLocal:
		ready.Status, ready.Reason = metav1.ConditionFalse, string(notGlobal)
		ready.Message = "The Namespace is not global, so that there is no derived Service"
	case refused.text != "":
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, string(refused.reason), limited(refused.text)
	}
	return []metav1.Condition{ready}
}

// The types of conditions of this duty. Conditions of other types stay.
var (
	exportConditionTypes = []string{
		string(mcsv1alpha1.ServiceExportConditionValid), string(mcsv1alpha1.ServiceExportConditionReady), string(mcsv1alpha1.ServiceExportConditionConflict),
	}
	importConditionTypes = []string{string(mcsv1alpha1.ServiceImportConditionReady)}
)

// setConditions makes the conditions of some types those that are wanted, and reports whether they were others. Those with which an original
// says the same stay.
func setConditions(all *[]metav1.Condition, types []string, want []metav1.Condition) (changed bool) {
	for _, t := range types {
		c := meta.FindStatusCondition(want, t)
		if c != nil && meansTheSame(meta.FindStatusCondition(*all, t), *c) {
			continue
		}
		if c != nil {
			changed = meta.SetStatusCondition(all, *c) || changed
		} else {
			changed = meta.RemoveStatusCondition(all, t) || changed
		}
	}
	return changed
}
