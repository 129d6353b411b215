// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

var statusType = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}

// writeStatus answers as an API server would.
func writeStatus(w http.ResponseWriter, method string, f facts, how control.Status) {
	retryAfter := int(math.Ceil(how.RetryAfter.Seconds()))
	body, err := json.Marshal(statusFor(method, f, how, retryAfter))
	if err != nil {
		panic(fmt.Sprintf("encode a Status: %v", err)) // its fields are plain
	}
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(how.Code)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// statusFor fills a Status with the reason and details that client libraries
// decide by.
func statusFor(method string, f facts, how control.Status, retryAfter int) metav1.Status {
	message := how.Message
	if message == "" {
		message = "the fault proxy answers " + strconv.Itoa(how.Code)
	}
	status := apierrors.NewGenericServerResponse(how.Code, method,
		schema.GroupResource{Group: f.group, Resource: f.resource}, f.name, message, retryAfter, false).Status()
	status.TypeMeta = statusType
	status.Message = message
	return status
}

// expired is the Status of a watch whose resource version is too old.
func expired() metav1.Status {
	status := apierrors.NewResourceExpired("the fault proxy expired this watch").Status()
	status.TypeMeta = statusType
	return status
}

// tooLarge is the Status of a read at a resource version that the server has not reached.
func tooLarge() metav1.Status {
	const retryAfter = 1 // seconds
	status := apierrors.NewTimeoutError("Too large resource version", retryAfter).Status()
	status.TypeMeta = statusType
	status.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return status
}
