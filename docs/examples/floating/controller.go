// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const finalizer = "fjord.example/address"

// controller keeps an address for each Service of type LoadBalancer.
type controller struct {
	services stream.Resource[service]
	store    *stream.Store[service]
	client   k8s.Client
	api      *api
}

func newController(c Config, services stream.Resource[service], client k8s.Client, s outside.Scope, m *floatMetrics) *controller {
	return &controller{services: services, client: client, api: newAPI(c, s, m)}
}

func (c *controller) Open(ctx context.Context) (err error) {
	c.store, err = c.services.Store(ctx)
	return err
}

func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	svc, ok := c.store.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	ref := k8s.Ref{Resource: services.Resource(), Namespace: key.Namespace, Name: key.Name, UID: svc.UID.API()}
	held := slices.ContainsFunc(svc.Finalizers, func(f slim.String) bool { return f.String() == finalizer })
	wanted := svc.Spec.Type.String() == string(corev1.ServiceTypeLoadBalancer) && svc.DeletionTimestamp.IsZero()
	var err error
	switch {
	case wanted:
		err = c.allocate(ctx, ref)
	case held:
		err = c.release(ctx, ref)
	default:
		return reconcile.Result{Reason: "none: the Service needs no address"}, nil
	}
	return reconcile.Result{}, err
}

// allocate adds the finalizer before it asks for the address, so that none is lost.
func (c *controller) allocate(ctx context.Context, ref k8s.Ref) error {
	if _, err := k8s.Update(ctx, c.client, ref, func(s *corev1.Service) error {
		k8s.AddFinalizer(s, finalizer)
		return nil
	}); err != nil {
		return err
	}
	address, err := c.api.allocate(ctx, string(ref.UID))
	if err != nil {
		return err
	}
	return c.setStatus(ctx, ref, []corev1.LoadBalancerIngress{{IP: address}})
}

func (c *controller) release(ctx context.Context, ref k8s.Ref) error {
	if err := c.api.release(ctx, string(ref.UID)); err != nil {
		return err
	}
	if err := c.setStatus(ctx, ref, nil); err != nil {
		return err
	}
	_, err := k8s.Update(ctx, c.client, ref, func(s *corev1.Service) error {
		k8s.RemoveFinalizer(s, finalizer)
		return nil
	})
	return err
}

func (c *controller) setStatus(ctx context.Context, ref k8s.Ref, ingress []corev1.LoadBalancerIngress) error {
	ref.Subresource = "status"
	_, err := k8s.Update(ctx, c.client, ref, func(s *corev1.Service) error {
		s.Status.LoadBalancer.Ingress = ingress
		return nil
	})
	return err
}
