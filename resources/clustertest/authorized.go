// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// AwaitAllowed waits until the API server lets a user do what rules that were just
// given say: it hears of them by watches of its own. One that lets do nothing is not
// waited for.
func AwaitAllowed(tb testing.TB, core kubernetes.Interface, user string, groups []string, rules []rbacv1.PolicyRule) {
	tb.Helper()
	for _, rule := range rules {
		if len(rule.Resources) == 0 {
			continue
		}
		ask := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0], Name: first(rule.ResourceNames),
			},
		}}
		allowed := func(ctx context.Context) bool {
			told, err := core.AuthorizationV1().SubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
			return err == nil && told.Status.Allowed
		}
		for deadline := time.Now().Add(time.Minute); !allowed(tb.Context()); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				tb.Fatalf("user %s is not allowed what was given: %v", user, rule)
			}
		}
		return // one of them tells for all
	}
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
