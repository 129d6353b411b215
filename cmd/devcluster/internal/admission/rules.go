// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package admission

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/cmd/devcluster/internal/chance"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

func planOf(a control.Admission) chance.Plan {
	return chance.Plan{Skip: a.Skip, Every: a.Every, Times: a.Times, Probability: a.Probability}
}

// rewrites reports whether it is a mutating webhook.
func rewrites(a control.Admission) bool { return len(a.Patch) > 0 || len(a.Drop) > 0 || len(a.Set) > 0 }

// matches decides what the registration cannot.
func matches(m control.AdmissionMatch, r *admissionv1.AdmissionRequest) bool {
	return r.Name != probeName && anyOf(m.Namespaces, r.Namespace) && anyOf(m.Names, r.Name) && anyOf(m.Users, r.UserInfo.Username)
}

func anyOf(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

var operations = []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}

func validate(a control.Admission) error {
	actions := 0
	for _, set := range []bool{a.Reject != nil, a.Hang != nil, rewrites(a)} {
		if set {
			actions++
		}
	}
	switch {
	case len(validation.IsDNS1123Label(a.ID)) > 0:
		return fmt.Errorf("%q is no ID of a webhook: use lower-case letters, digits and dashes", a.ID)
	case actions != 1:
		return fmt.Errorf("a webhook says exactly one of reject, hang and a rewrite (patch, drop, set), this one %d", actions)
	case a.Reject != nil && slices.ContainsFunc(a.Reject.Codes, func(code int) bool { return code < 400 || code > 599 }):
		return fmt.Errorf("one of the codes %v is no failure: use 400 to 599", a.Reject.Codes)
	case a.Hang != nil && (a.Hang.Patience < 0 || a.Hang.Patience > 30*time.Second || a.Hang.Patience%time.Second != 0):
		return fmt.Errorf("patience %s: use whole seconds from 1 to 30", a.Hang.Patience)
	case slices.Contains(a.Match.Groups, ""):
		return errors.New(`empty group: the core group is spelled "core"`)
	case len(a.Patch) > 0 && !bytes.HasPrefix(bytes.TrimSpace(a.Patch), []byte("[")):
		return errors.New("a JSON patch is a list of operations")
	}
	for _, op := range a.Match.Operations {
		if !slices.Contains(operations, op) {
			return fmt.Errorf("unknown operation %q: use one of %s", op, strings.Join(operations, ", "))
		}
	}
	for _, pointer := range slices.Concat(a.Drop, pointersOf(a.Set)) {
		if !strings.HasPrefix(pointer, "/") {
			return fmt.Errorf("JSON pointer %q does not start with /", pointer)
		}
	}
	return planOf(a).Validate()
}
