// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/alibabacloud-go/tea/dara"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
)

// Codes of errors.
const (
	codeNoInterface = "InvalidEniId.NotFound"
	codeNoAddress   = "InvalidIp.IpUnassigned"
	codeNoVSwitch   = "InvalidVSwitchId.NotFound"
	codeFull        = "InvalidVSwitchId.IpNotEnough"
	codeMostENIs    = "EniPerInstanceLimitExceeded"
)

// refusal is an answer that is an error.
type refusal struct {
	product   product
	operation string
	status    int
	code      string
	message   string
	identity  string // that was used
}

// HTTPStatusCode is for doors. Credentials that are not accepted are no fault of the request.
func (r *refusal) HTTPStatusCode() int {
	if r.isForIdentity() {
		return http.StatusUnauthorized
	}
	return r.status
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("%s: %d %s", r.operation, r.status, http.StatusText(r.status))
	if r.code != "" {
		text += ": " + r.code
	}
	switch {
	case r.isForIdentity():
		return text + ": the credentials are not accepted: " + r.identity
	case r.isDenied():
		return text + ": " + r.advice()
	case r.message != "" && isChange(r.operation) && !r.isThrottled(): // others are in health, which has no ids and times
		return text + ": " + r.message
	}
	return text
}

func isChange(operation string) bool {
	return !strings.HasPrefix(operation, "Describe") && !strings.HasPrefix(operation, "List")
}

// isForIdentity reports whether the credentials are not accepted.
func (r *refusal) isForIdentity() bool {
	return r.hasPrefix("InvalidAccessKeyId", "InvalidSecurityToken", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAccessKeyId", "Abs.InvalidAccount")
}

// isDenied reports whether the credentials lack a permission.
func (r *refusal) isDenied() bool {
	return r.hasPrefix("Forbidden.RAM", "Forbidden.SubUser", "NoPermission")
}

func (r *refusal) advice() string {
	return fmt.Sprintf("allow the operator's RAM identity %s:%s", r.product, r.operation)
}

func (r *refusal) isThrottled() bool {
	return r.hasPrefix("Throttling", "ServiceUnavailable.Throttling", "FlowControl") || r.status == http.StatusTooManyRequests
}

// isConflict reports whether another operation is under way: the next attempt may succeed.
func (r *refusal) isConflict() bool { return r.hasPrefix("Operation.Conflict", "OperationConflict") }

func (r *refusal) hasPrefix(prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return r.code == p || strings.HasPrefix(r.code, p+".") })
}

// codeOf is the code of an error of Alibaba Cloud, "" for others.
func codeOf(err error) string {
	if of := new(refusal); errors.As(err, &of) {
		return of.code
	}
	return ""
}

// isUnknown reports whether a call that has failed may have been carried out.
func isUnknown(err error) bool {
	of := new(refusal)
	return wasSent(err) && (!errors.As(err, &of) || of.status == http.StatusInternalServerError)
}

// isFinal reports whether a call is refused for what it asks for: another attempt is refused as well.
func isFinal(err error) bool {
	of := new(refusal)
	return errors.As(err, &of) && of.status < http.StatusInternalServerError && !of.isThrottled() && !of.isForIdentity() && !of.isConflict()
}

// wasSent reports whether a call that has failed passed the door.
func wasSent(err error) bool {
	return !errors.Is(err, outside.ErrPlanned) && !errors.Is(err, leading.ErrFenced) && !errors.As(err, new(*outside.ThrottledError))
}

// classify makes an error of one of the SDK. That of a call which was refused for its rate asks for a pause.
func (s *session) classify(ctx context.Context, of product, operation string, got answer, err error) error {
	switch {
	case err == nil:
		s.throttle.Passed()
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case got.status < http.StatusBadRequest:
		return fmt.Errorf("%s: %w", operation, err)
	}
	refused, pause := &refusal{product: of, operation: operation, status: got.status, identity: s.identity.name()}, got.pause
	var api dara.ResponseError
	if errors.As(err, &api) {
		refused.code = dara.StringValue(api.GetCode())
		message, _ := api.GetData()["Message"].(string)
		refused.message, _, _ = strings.Cut(strings.TrimSpace(message), "\n")
		pause = max(pause, time.Duration(dara.Int64Value(api.GetRetryAfter()))*time.Millisecond)
	}
	switch {
	case refused.isForIdentity():
		s.identity.expire()
	case pause > 0:
		return outside.Throttled(refused, pause)
	case refused.isThrottled():
		return s.throttle.Refused(refused)
	}
	return refused
}

// asProblem is the error of a change as users see it, without ids of requests and times. Those that the next attempt would have
// as well say for how long nothing is changed for the node.
func asProblem(err error, status, instance, vSwitch string) error {
	of, known, problem := new(refusal), new(cloudipam.NodeError), &cloudipam.NodeError{Status: status, Err: err}
	switch {
	case errors.As(err, &known):
		problem.Text, problem.Err = known.Text, known.Err
	case !errors.As(err, &of) || errors.As(err, new(*outside.ThrottledError)): // it was not refused for what it is
	case of.code == codeFull:
		problem.Text = fmt.Sprintf("vSwitch %s has no free addresses", vSwitch)
	case of.code == codeNoVSwitch:
		problem.Text = fmt.Sprintf("vSwitch %s does not exist any more", vSwitch)
	case of.code == codeMostENIs:
		problem.Text, problem.Pause = fmt.Sprintf("instance %s has as many interfaces as ECS allows", instance), 10*time.Minute
	case of.hasPrefix("InvalidEcsId.NotFound", "InvalidInstanceId.NotFound"):
		problem.Text, problem.Pause = fmt.Sprintf("instance %s does not exist: delete the CiliumNode if it is obsolete", instance), time.Hour
	case of.hasPrefix("InvalidOperation.InvalidEcsState", "IncorrectInstanceStatus"):
		problem.Text, problem.Pause = fmt.Sprintf("instance %s is not running", instance), time.Minute
	case of.isDenied():
		problem.Text = of.advice()
	case of.hasPrefix("QuotaExceeded", "QuotaExceed", "MaxEniCountExceeded", "SecurityGroupInstanceLimitExceed", "InvalidOperation.MaxEniCountExceeded"):
		problem.Text = "a quota is used up: ECS answers " + of.code
	case of.hasPrefix("InvalidSecurityGroupId"):
		problem.Text = "the security groups cannot be used: ECS answers " + of.code
	case isFinal(err):
		problem.Text = fmt.Sprintf("ECS refuses %s: %s", of.operation, of.code)
	}
	return problem
}
