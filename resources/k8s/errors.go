// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"errors"
	"fmt"
	"net/http"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InvalidResponseError is a response that does not come from the API server, or that
// is not about the request: an HTML page, an empty body, a redirect, a list in place
// of an object, another object. Nothing is known of what the request has done.
type InvalidResponseError struct {
	Method, Path string
	Code         int    // of the response
	What         string // what came in place of the response
}

func (e *InvalidResponseError) Error() string {
	return fmt.Sprintf("the response to %s %s is not that of the API server: %s (code %d)", e.Method, e.Path, e.What, e.Code)
}

// NotStoredError is a write that was accepted, and whose response does not show the
// change: a mutating webhook has undone it. What the installed definition is known to
// lack is no change. The object as it was stored instead is returned beside it: errors
// are kept for as long as a key fails, and objects may be large.
type NotStoredError struct {
	Ref   Ref
	Field string // path of the first field that differs
}

func (e *NotStoredError) Error() string {
	return fmt.Sprintf("%s was written, and the response does not show the change of %s: a mutating webhook undoes it, or the installed definition lacks the field", e.Ref, e.Field)
}

// IsNotFound reports whether err is the API server's word that this object does not
// exist. The 404 of a proxy, of an API server that does not serve the resource (yet),
// or about another object is not.
func IsNotFound(err error, ref Ref) bool {
	return isAbout(err, ref, metav1.StatusReasonNotFound)
}

// IsConflict reports whether err is the API server's word that this object is not in
// the state that the write was meant for.
func IsConflict(err error, ref Ref) bool {
	return isAbout(err, ref, metav1.StatusReasonConflict)
}

// IsAlreadyExists reports whether err is the API server's word that an object of this
// name exists. A ref without a name is that of a generated one.
func IsAlreadyExists(err error, ref Ref) bool {
	return isAbout(err, ref, metav1.StatusReasonAlreadyExists)
}

func isAbout(err error, ref Ref, reason metav1.StatusReason) bool {
	status, ok := statusOf(err)
	if !ok || status.Reason != reason || status.Details == nil {
		return false
	}
	d := status.Details
	return d.Group == ref.Resource.Group && isKindOf(d.Kind, ref.Resource.Resource) && (ref.Name == "" || d.Name == ref.Name)
}

// isKindOf reports whether the kind in the details of a Status fits a resource. It is
// the resource, or in some handlers the kind, which cannot be compared with it.
func isKindOf(kind, resource string) bool {
	return kind == resource || kind != "" && unicode.IsUpper(rune(kind[0]))
}

// Refused reports whether err shows that a write has changed nothing: the API server
// has refused it, or it was not sent.
func Refused(err error) bool {
	var permission *PermissionError
	var contention *ContentionError
	if errors.As(err, &permission) || errors.As(err, &contention) {
		return true
	}
	status, ok := statusOf(err)
	return ok && status.Code >= http.StatusBadRequest && status.Code < http.StatusInternalServerError
}

// statusOf is the Status that the API server has sent. One that client-go has made of
// a response without a Status is none.
func statusOf(err error) (metav1.Status, bool) {
	var s apierrors.APIStatus
	if !errors.As(err, &s) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return metav1.Status{}, false
	}
	return s.Status(), true
}
