// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/builtin"
)

// Permissions are what the role allows, as the API server told at the start, and, as
// long as something is missing, every few seconds. Before it did, and where it cannot
// list all of it (authorizers that are no lists of rules), nothing is held to be
// denied. It is safe for concurrent use.
type Permissions struct {
	mu       sync.RWMutex
	known    bool // all of it is listed here
	rules    []authorizationv1.ResourceRule
	paths    []authorizationv1.NonResourceRule
	isRead   bool
	awaiting []chan struct{} // closed when the API server has told

	denials denials
}

// Denies reports whether it is known that a verb is not allowed.
func (p *Permissions) Denies(verb string, ref Ref) bool {
	return p.Known() && !p.lists(permissionOf(verb, ref))
}

// Allows reports whether it is known that a verb is allowed.
func (p *Permissions) Allows(verb string, ref Ref) bool {
	return p.lists(permissionOf(verb, ref))
}

// Known reports whether the API server has told all that is allowed.
func (p *Permissions) Known() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known
}

// await waits until the API server has told what is allowed, or until ctx is done.
func (p *Permissions) await(ctx context.Context) {
	p.mu.Lock()
	told := make(chan struct{})
	if p.isRead {
		close(told)
	} else {
		p.awaiting = append(p.awaiting, told)
	}
	p.mu.Unlock()
	select {
	case <-told:
	case <-ctx.Done():
	}
}

// lists reports whether the rules allow it.
func (p *Permissions) lists(want permission) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if want.path != "" {
		return slices.ContainsFunc(p.paths, func(r authorizationv1.NonResourceRule) bool {
			return matches(r.Verbs, want.verb) && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool {
				below, all := strings.CutSuffix(url, "*")
				return url == want.path || all && strings.HasPrefix(want.path, below)
			})
		})
	}
	_, subresource, _ := strings.Cut(want.resource, "/")
	return slices.ContainsFunc(p.rules, func(r authorizationv1.ResourceRule) bool {
		return matches(r.Verbs, want.verb) && matches(r.APIGroups, want.group) &&
			(matches(r.Resources, want.resource) || subresource != "" && slices.Contains(r.Resources, "*/"+subresource)) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, want.name))
	})
}

func matches(list []string, s string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, s)
}

// missing are the permissions of rules that the role lacks. Where the API
// server did not list all that is allowed, it is asked about each that is not
// on the list.
func (p *Permissions) missing(ctx context.Context, api *reviews, rules []rbacv1.PolicyRule) ([]string, error) {
	var missing []string
	for _, rule := range rules {
		for _, want := range permissionsOf(rule) {
			lacks, err := p.lacks(ctx, api, want)
			if err != nil {
				return nil, err
			}
			if lacks {
				missing = append(missing, want.String())
			}
		}
	}
	return missing, nil
}

// lacks reports whether the role lacks a permission.
func (p *Permissions) lacks(ctx context.Context, api *reviews, want permission) (bool, error) {
	if p.lists(want) {
		return false, nil
	}
	if p.Known() {
		return true, nil
	}
	allowed, err := ask(ctx, api, want)
	return !allowed, err
}

// reviews are the clients that ask what the role allows.
type reviews struct {
	access creator[*authorizationv1.SelfSubjectAccessReview]
	rules  creator[*authorizationv1.SelfSubjectRulesReview]
}

// creator is a client of which objects are only created.
type creator[T any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
}

func newReviews(config *rest.Config) (*reviews, error) {
	version := authorizationv1.SchemeGroupVersion
	access, err := builtin.NewClient[*authorizationv1.SelfSubjectAccessReview](config, version.WithResource("selfsubjectaccessreviews"), "")
	if err != nil {
		return nil, err
	}
	rules, err := builtin.NewClient[*authorizationv1.SelfSubjectRulesReview](config, version.WithResource("selfsubjectrulesreviews"), "")
	return &reviews{access, rules}, err
}

func ask(ctx context.Context, api *reviews, want permission) (allowed bool, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: want.review()}
	review, err = api.access.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("asking whether the role allows %s: %w", want, err)
	}
	return review.Status.Allowed, nil
}

// read asks the API server what it can list.
func (p *Permissions) read(ctx context.Context, api *reviews) error {
	review, err := api.rules.Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking what the role allows: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = !review.Status.Incomplete
	p.rules, p.paths = review.Status.ResourceRules, review.Status.NonResourceRules
	p.isRead = true
	for _, told := range p.awaiting {
		close(told)
	}
	p.awaiting = nil
	return nil
}

// permission is one verb on a resource or path.
type permission struct{ verb, group, resource, name, path string }

func permissionOf(verb string, ref Ref) permission {
	resource := ref.Resource.Resource
	if ref.Subresource != "" {
		resource += "/" + ref.Subresource
	}
	return permission{verb: verb, group: ref.Resource.Group, resource: resource, name: ref.Name}
}

// permissionsOf are the single permissions of a rule.
func permissionsOf(rule rbacv1.PolicyRule) []permission {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []permission
	for _, verb := range rule.Verbs {
		for _, path := range rule.NonResourceURLs {
			all = append(all, permission{verb: verb, path: path})
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					all = append(all, permission{verb: verb, group: group, resource: resource, name: name})
				}
			}
		}
	}
	return all
}

func (p permission) String() string {
	if p.path != "" {
		return p.verb + " " + p.path
	}
	text := p.verb + " " + p.resource
	if p.group != "" {
		text += "." + p.group
	}
	if p.name != "" {
		text += " " + p.name
	}
	return text
}

func (p permission) review() authorizationv1.SelfSubjectAccessReviewSpec {
	if p.path != "" {
		return authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: p.verb, Path: p.path},
		}
	}
	resource, subresource, _ := strings.Cut(p.resource, "/")
	return authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.verb, Group: p.group, Resource: resource, Subresource: subresource, Name: p.name,
		},
	}
}
