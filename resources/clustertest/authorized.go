// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/runtime/waittest"
)

// AwaitAllowed waits until the API server lets a user do what rules that were just
// given say: it hears of them by watches of its own. Rules without a resource are not
// waited for; one of the others tells for all.
func AwaitAllowed(tb testing.TB, core kubernetes.Interface, user string, rules []rbacv1.PolicyRule) {
	tb.Helper()
	AwaitAllowedIn(tb, core, user, "", rules)
}

// AwaitAllowedIn is AwaitAllowed for rules of a Role.
func AwaitAllowedIn(tb testing.TB, core kubernetes.Interface, user, namespace string, rules []rbacv1.PolicyRule) {
	tb.Helper()
	i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.Resources) > 0 })
	if i < 0 {
		return
	}
	rule := rules[i]
	ask := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]},
	}}
	if len(rule.ResourceNames) > 0 {
		ask.Spec.ResourceAttributes.Name = rule.ResourceNames[0]
	}
	err := wait.PollUntilContextTimeout(tb.Context(), 5*time.Millisecond, waittest.Limit, true, func(ctx context.Context) (bool, error) {
		told, err := core.AuthorizationV1().SubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
		return err == nil && told.Status.Allowed, nil
	})
	if err != nil {
		tb.Fatalf("user %s is not allowed what was given (%v, namespace %q): %v", user, rule, namespace, err)
	}
}
