// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/skep-operator/skep/resources/builtin"
)

// check finds mistakes in the rules.
func (r Rules) check() error {
	var errs []error
	for _, rule := range slices.Concat(r.Required, r.Optional) {
		errs = append(errs, checkRule(rule))
	}
	return errors.Join(errs...)
}

// checkRule finds verbs that there are not, and resources that a built-in group has not.
func checkRule(rule rbacv1.PolicyRule) error {
	for _, verb := range rule.Verbs {
		if !slices.Contains(verbOrder, verb) {
			return fmt.Errorf("%q is no verb of the API: use %s", verb, strings.Join(verbOrder, ", "))
		}
	}
	for _, group := range rule.APIGroups {
		builtIn := builtin.ResourcesOfGroup(group)
		for _, resource := range rule.Resources {
			name, _, _ := strings.Cut(resource, "/")
			if len(builtIn) > 0 && !slices.Contains(builtIn, name) {
				return fmt.Errorf("%q is no resource of the API group %q: write its plural, in lower case", name, group)
			}
		}
	}
	return nil
}
