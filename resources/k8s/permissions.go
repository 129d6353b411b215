// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
)

// Permissions are what the role allows, as the API server told once. Before it
// did, and where it cannot say (authorizers that it does not know through and
// through), nothing is held to be denied. It is safe for concurrent use.
type Permissions struct {
	mu    sync.RWMutex
	known bool
	rules []authorizationv1.ResourceRule
	paths []authorizationv1.NonResourceRule
}

// Denies reports whether it is known that a verb is not allowed.
func (p *Permissions) Denies(verb string, ref Ref) bool {
	resource := ref.Resource.Resource
	if ref.Subresource != "" {
		resource += "/" + ref.Subresource
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known && !p.allows(verb, ref.Resource.Group, resource, ref.Name)
}

// Known reports whether the API server has told what is allowed.
func (p *Permissions) Known() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known
}

// allows is called with the lock held.
func (p *Permissions) allows(verb, group, resource, name string) bool {
	return slices.ContainsFunc(p.rules, func(r authorizationv1.ResourceRule) bool {
		return matches(r.Verbs, verb) && matches(r.APIGroups, group) && matches(r.Resources, resource) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
	})
}

func matches(list []string, s string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return l == "*" || l == s })
}

// Missing are the permissions of a rule that the role lacks, as verb and
// resource.
func (p *Permissions) Missing(rule rbacv1.PolicyRule) []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.known {
		return nil
	}
	var missing []string
	for _, verb := range rule.Verbs {
		for _, path := range rule.NonResourceURLs {
			allowed := slices.ContainsFunc(p.paths, func(r authorizationv1.NonResourceRule) bool {
				return matches(r.Verbs, verb) && matches(r.NonResourceURLs, path)
			})
			if !allowed {
				missing = append(missing, verb+" "+path)
			}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range orAny(rule.ResourceNames) {
					if !p.allows(verb, group, resource, name) {
						missing = append(missing, describeMissing(verb, group, resource, name))
					}
				}
			}
		}
	}
	return missing
}

func orAny(names []string) []string {
	if len(names) == 0 {
		return []string{""}
	}
	return names
}

func describeMissing(verb, group, resource, name string) string {
	text := verb + " " + resource
	if group != "" {
		text += "." + group
	}
	if name != "" {
		text += " " + name
	}
	return text
}

// read asks the API server.
func (p *Permissions) read(ctx context.Context, c Client) error {
	reviews, err := authorizationclient.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	review, err := reviews.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking what the role allows: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = !review.Status.Incomplete
	p.rules, p.paths = review.Status.ResourceRules, review.Status.NonResourceRules
	return nil
}

// reportMissing degrades each enabled module that lacks a permission, and
// names it in one line.
func (p *Permissions) reportMissing(g *graph.Graph, tree *health.Tree, log *slog.Logger) {
	for _, m := range g.Modules {
		if !m.Enabled {
			continue
		}
		var missing []string
		for _, rule := range rulesOf(m).Required {
			missing = append(missing, p.Missing(rule)...)
		}
		if len(missing) == 0 {
			continue
		}
		text := strings.Join(missing, ", ")
		tree.Reporter(m.ID).Part("permissions").Degraded("the role lacks "+text, nil)
		log.Warn("the role lacks permissions; what needs them does not work until it is given them", "module", m.ID, "missing", text)
	}
}
