// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// reconcileRoute writes the status of a route.
func (c *controller) reconcileRoute(ctx context.Context, key slim.Key, kind string, of slim.Key) (reconcile.Result, error) {
	r, exists := c.route(kind, of)
	if !exists || !r.DeletionTimestamp.IsZero() {
		c.accepted.Set(key, "")
		c.cache.Forget(key)
		c.imports.Drop(key)
		c.sets.Drop(key)
		c.agents.Drop(key)
		return reconcile.Result{Reason: isGone}, nil
	}
	if !r.AsksServer() {
		c.agents.Drop(key)
	}
	var sets knownSets
	if r.HasListenerSet() {
		var err error
		if sets, err = c.needListenerSets(ctx, key); err != nil {
			return reconcile.Result{}, err
		}
		if !sets.known() {
			return sets.result(isWaiting), nil
		}
	} else {
		c.sets.Drop(key)
	}
	waiting := false
	results := c.parents(sets).results(r, c.lookup(key, &waiting))
	if waiting {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	if len(results) == 0 {
		c.accepted.Set(key, "")
	} else {
		c.accepted.Set(key, stateOf(refusalOf(results) == ""))
	}
	now := metav1.NewTime(c.Deps.Plan.Now())
	result := sets.result(refusalOf(results))
	if _, changed := mergeParents(r.Status, results, r.Generation, now); !changed {
		return result, nil
	}
	ref := k8s.Ref{Resource: c.resourceOf(kind), Namespace: of.Namespace, Name: of.Name, Subresource: "status", UID: r.UID.API()}
	err := modifyStatus(k8s.WithOneSource(ctx), c.Client, ref, func(s *route.Status) {
		s.Parents, _ = mergeParents(s.Parents, results, r.Generation, now)
	})
	return result, err
}

// refusalOf is the words of the status for a route that a parent does not accept, or a backend that is not found.
func refusalOf(all []parentResult) string {
	for _, r := range all {
		for _, v := range []condition.Condition{r.accepted, r.resolved} {
			if !r.kept && !v.OK {
				return fmt.Sprintf("not served by %s as it asks for: %s: %s", r.ref.Name, v.Reason, v.Message)
			}
		}
	}
	return ""
}

func (c *controller) resourceOf(kind string) schema.GroupVersionResource {
	switch kind {
	case route.KindHTTP:
		return httpRoutes.Resource()
	case route.KindGRPC:
		return grpcRoutes.Resource()
	}
	return c.servedOf(kind).resource
}

// parents are those of the cluster.
func (c *controller) parents(sets knownSets) parents {
	return parents{
		gateway: func(key slim.Key) (g *gateway, ours, known bool) {
			g, exists := c.gateways.Get(key)
			if !exists {
				return nil, true, !c.gateways.Hides(key)
			}
			cl, exists := c.classes.Get(slim.Key{Name: string(g.Spec.GatewayClassName)})
			if !exists || g.IsCut() {
				return g, false, false
			}
			return g, cl.Spec.ControllerName == controllerName, true
		},
		listenerSet: sets.get,
		refused:     c.refused.at,
		cache:       c.cache,
		service: func(key slim.Key) *service {
			s, _ := c.services.Get(key)
			return s
		},
	}
}

// modifyStatus edits a status as a T. What T does not have stays.
func modifyStatus[T any](ctx context.Context, client k8s.Client, ref k8s.Ref, edit func(*T)) error {
	err := editStatus(ctx, client, ref, edit)
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// editStatus edits a status as modifyStatus does. An object that does not exist is an error.
func editStatus[T any](ctx context.Context, client k8s.Client, ref k8s.Ref, edit func(*T)) error {
	_, _, err := client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		has, _ := u.Object["status"].(map[string]any)
		if has == nil {
			has = map[string]any{}
		}
		status := new(T)
		if err := convert(has, status); err != nil {
			return fmt.Errorf("decoding the status of %s: %w", ref, err)
		}
		var before, after map[string]any
		if err := convert(status, &before); err != nil {
			return err
		}
		edit(status)
		if err := convert(status, &after); err != nil {
			return err
		}
		for field := range before {
			delete(has, field)
		}
		maps.Copy(has, after)
		u.Object["status"] = has
		return nil
	})
	return err
}

// convert sets a value to another one by way of JSON.
func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(text, to)
}
